"""Hypothesis strategies: valid configurations of small mixers, and inputs for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import mamba2_bridge as mb


@st.composite
def configs(draw: st.DrawFn, largest: int = 6) -> mb.Mamba2Config:
    """Valid configurations; every option and every kind of size turns up, of d_state up to `largest`."""
    ngroups = draw(st.integers(1, 3), label="ngroups")
    headdim = draw(st.integers(1, largest - 1), label="headdim")
    d_ssm = ngroups * draw(st.integers(1, 3), label="heads a group") * headdim
    expand = draw(st.integers(1, 3), label="expand")
    d_model = -(-d_ssm // expand) + draw(st.integers(0, 3), label="d_mlp")
    return mb.Mamba2Config(
        d_model=d_model,
        d_state=draw(st.integers(1, largest), label="d_state"),
        d_conv=draw(st.integers(1, max(5, largest // 4)), label="d_conv"),
        expand=expand,
        headdim=headdim,
        d_ssm=d_ssm if d_ssm != expand * d_model else draw(st.sampled_from([None, d_ssm]), label="d_ssm"),
        ngroups=ngroups,
        norm_groups=draw(st.sampled_from([None, *divisors(d_ssm)]), label="norm_groups"),
        D_has_hdim=draw(st.booleans(), label="D_has_hdim"),
        rmsnorm=draw(st.booleans(), label="rmsnorm"),
        norm_before_gate=draw(st.booleans(), label="norm_before_gate"),
        dt_limit=draw(
            st.sampled_from([(0.0, np.inf), (0.01, 0.05), (0.0, 0.5), (0.3, np.inf)]), label="dt_limit"
        ),
        bias=draw(st.booleans(), label="bias"),
        conv_bias=draw(st.booleans(), label="conv_bias"),
        chunk_size=draw(st.sampled_from([1, 2, 7, 16, 17, 64, 1000]), label="chunk_size"),
    )


def divisors(n: int) -> list[int]:
    """All divisors of a positive number."""
    return [d for d in range(1, n + 1) if n % d == 0]


batches = st.integers(0, 3)
seqlens = st.one_of(st.integers(0, 6), st.integers(7, 70))
seeds = st.integers(0, 2**32)


def wrong_fields() -> st.SearchStrategy[dict[str, Any]]:
    """A field of a configuration with a value that breaks its rule."""
    count = st.sampled_from(["d_model", "d_state", "d_conv", "expand", "headdim", "ngroups", "chunk_size"])
    number = st.sampled_from(["dt_min", "dt_max", "dt_init_floor", "norm_eps"])
    flag = st.sampled_from(["D_has_hdim", "rmsnorm", "norm_before_gate", "bias", "conv_bias"])
    pair = st.sampled_from(["A_init_range", "dt_limit"])
    no_integer = st.one_of(
        st.integers(max_value=0),
        st.integers(min_value=2**63),
        st.floats(),
        st.text(),
        st.none(),
        st.booleans(),
    )
    no_number = st.one_of(
        st.floats(max_value=0.0), st.just(np.nan), st.just(np.inf), st.text(), st.none(), st.booleans()
    )
    no_flag = st.one_of(st.integers(), st.floats(), st.text(), st.none())
    backwards = st.tuples(st.floats(1.0, 1e6), st.floats(0.0, 0.99))
    no_pair = st.one_of(
        backwards, st.floats(), st.none(), st.text(), st.tuples(no_number, no_number).filter(unordered)
    )
    return st.one_of(
        *(
            st.tuples(names, values)
            for names, values in ((count, no_integer), (number, no_number), (flag, no_flag), (pair, no_pair))
        )
    ).map(lambda field: dict([field]))


def unordered(pair: tuple[Any, Any]) -> bool:
    """Whether a pair is no range from zero up, whichever rule applies."""
    low, high = pair
    try:
        return isinstance(low, bool) or isinstance(high, bool) or not 0 <= low <= high
    except TypeError:
        return True
