"""Hypothesis strategies: valid configurations of small mixers, sizes, and cases of the parity harness."""

from __future__ import annotations

import math

from mamba2_bridge._extras import require

require("hypothesis", "mamba2_bridge.testing.strategies")

import numpy as np  # noqa: E402 (only now is hypothesis sure to be there)
from hypothesis import strategies as st  # noqa: E402

import mamba2_bridge as mb  # noqa: E402
from mamba2_bridge.parity.cases import Case  # noqa: E402, TC001 (hypothesis reads annotations)
from mamba2_bridge.parity.mamba2_cases import draw_parameters, draw_state, exact, mixer_case  # noqa: E402


@st.composite
def configs(draw: st.DrawFn, largest: int = 6) -> mb.Mamba2Config:
    """Draw a valid configuration; every option and every kind of size turns up, d_state up to `largest`."""
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
            st.sampled_from([(0.0, math.inf), (0.01, 0.05), (0.0, 0.5), (0.3, math.inf)]), label="dt_limit"
        ),
        bias=draw(st.booleans(), label="bias"),
        conv_bias=draw(st.booleans(), label="conv_bias"),
        chunk_size=draw(st.sampled_from([1, 2, 7, 16, 17, 64, 1000]), label="chunk_size"),
    )


def divisors(n: int) -> list[int]:
    """List all divisors of a positive number."""
    return [d for d in range(1, n + 1) if n % d == 0]


batches = st.integers(0, 3)
seqlens = st.one_of(st.integers(0, 6), st.integers(7, 70))
seeds = st.integers(0, 2**32)


@st.composite
def mixer_cases(draw: st.DrawFn, largest: int = 6, most_tokens: int = 40) -> Case:
    """Draw a case of one mixer of any configuration, forward and backward, with and without states."""
    config = draw(configs(largest), label="config").to_dict()
    batch = draw(st.integers(1, 3), label="batch")
    seqlen = draw(st.integers(1, most_tokens), label="seqlen")
    with_states = draw(st.booleans(), label="states")
    rng = np.random.default_rng(draw(seeds, label="seed"))
    shape = (batch, seqlen, config["d_model"])
    params = draw_parameters(rng, config)
    u, dy = (exact(rng.standard_normal(shape)) for _ in range(2))
    states = [draw_state(rng, config, batch) if with_states else None for _ in range(2)]
    return mixer_case("any config", config, params, u, dy, *states)
