"""Hypothesis strategies of what is not valid."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st


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
