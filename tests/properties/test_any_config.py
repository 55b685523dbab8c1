"""What holds for any valid configuration and any shape; and that any invalid one is refused."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mamba2_bridge as mb
from assertions import assert_results_close, results_close
from mamba2_bridge.testing.strategies import batches, configs, seeds, seqlens
from native_models import DTYPES, by_part, noise, noisy_state, scatter
from strategies import wrong_fields
from twin import losses_in_fp32

quick = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


def model_of(cfg, dtype="float64", seed=0):
    model = mb.Mamba2(cfg, dtype, seed=seed)
    scatter(model, seed + 1)
    return model


def run(model, u, state, dy, dstate):
    out = model.forward(u, state)
    grads = out.backward(dy, dstate)
    return {
        "out": out.y,
        **by_part("final", out.state),
        "grad.u": grads.input,
        **by_part("grad.init", grads.state),
        **{f"grad.param.{name}": grad for name, grad in grads.items()},
    }


@quick
@given(cfg=configs(), batch=batches, seqlen=seqlens, dtype=st.sampled_from(DTYPES), seed=seeds)
def test_shapes_and_finite_numbers(cfg, batch, seqlen, dtype, seed):
    model, u = model_of(cfg, dtype), noise(batch, seqlen, cfg.d_model, dtype=dtype, seed=seed)
    state = noisy_state(model, batch)
    results = run(model, u, state, u, state)
    shapes = {"out": u.shape, "final.conv_state": (batch, cfg.conv_dim, cfg.d_conv - 1)}
    shapes |= {"final.ssm_state": (batch, cfg.nheads, cfg.headdim, cfg.d_state), "grad.u": u.shape}
    shapes |= {f"grad.init.{part}": shapes[f"final.{part}"] for part in ("conv_state", "ssm_state")}
    shapes |= {f"grad.param.{name}": value.shape for name, value in model.varmap.items()}
    assert {name: value.shape for name, value in results.items()} == shapes
    for name, value in results.items():
        assert value.dtype == dtype, name
        assert np.isfinite(value).all(), name


@quick
@given(cfg=configs(), batch=st.integers(1, 3), seqlen=st.integers(1, 40), seed=seeds)
def test_steps_equal_forward(cfg, batch, seqlen, seed):
    model, u = model_of(cfg), noise(batch, seqlen, cfg.d_model, seed=seed)
    initial = state = noisy_state(model, batch)
    tokens = []
    for t in range(seqlen):
        y_t, state = model.step(u[:, t], state)
        tokens.append(y_t)
    want = model.forward(u, initial)
    got = {"out": np.stack(tokens, axis=1), **by_part("final", state)}
    assert_results_close(str(cfg), got, {"out": want.y, **by_part("final", want.state)}, "float64")


@quick
@given(cfg=configs(), batch=st.integers(1, 2), seqlen=seqlens, chunk_size=st.integers(1, 80), seed=seeds)
def test_the_chunk_size_changes_nothing(cfg, batch, seqlen, chunk_size, seed):
    model, u = model_of(cfg), noise(batch, seqlen, cfg.d_model, seed=seed)
    other = mb.Mamba2(replace(cfg, chunk_size=chunk_size), "float64")
    other.load_state_dict(model.state_dict())
    state, dy, dstate = (
        noisy_state(model, batch),
        noise(*u.shape, seed=seed + 1),
        noisy_state(model, batch, 7),
    )
    got, want = run(other, u, state, dy, dstate), run(model, u, state, dy, dstate)
    assert_results_close(str(cfg), got, want, "float64")


@quick
@given(cfg=configs(), batch=st.integers(1, 2), seqlen=seqlens, share=st.floats(0, 1), seed=seeds)
def test_a_sequence_may_be_cut_anywhere(cfg, batch, seqlen, share, seed):
    model, u = model_of(cfg), noise(batch, seqlen, cfg.d_model, seed=seed)
    state, dy, dstate = (
        noisy_state(model, batch),
        noise(*u.shape, seed=seed + 1),
        noisy_state(model, batch, 7),
    )
    cut = round(share * seqlen)
    first = model.forward(u[:, :cut], state)
    second = model.forward(u[:, cut:], first.state)
    late = second.backward(dy[:, cut:], dstate)
    early = first.backward(dy[:, :cut], late.state)
    got = {
        "out": np.concatenate([first.y, second.y], axis=1),
        **by_part("final", second.state),
        "grad.u": np.concatenate([early.input, late.input], axis=1),
        **by_part("grad.init", early.state),
    }
    got |= {f"grad.param.{name}": grad for name, grad in late.add_(early).items()}
    assert_results_close(str(cfg), got, run(model, u, state, dy, dstate), "float64")


@settings(quick, max_examples=int(os.environ.get("KERNEL_EXAMPLES", "100")))
@given(cfg=configs(largest=36), batch=st.integers(1, 10), seqlen=seqlens, seed=seeds)
def test_fused_kernels_equal_the_composed_form(cfg, batch, seqlen, seed):
    """KERNEL_EXAMPLES asks for more than the usual hundred examples; ten thousand want --timeout 0."""
    u, dy = noise(batch, seqlen, cfg.d_model, seed=seed), noise(batch, seqlen, cfg.d_model, seed=seed + 1)
    results = []
    for kernels in ("fused", "composed"):
        model = mb.Mamba2(cfg, "float64", kernels=kernels)
        scatter(model, seed)
        state, dstate = noisy_state(model, batch), noisy_state(model, batch, 7)
        results.append(run(model, u, state, dy, dstate))
    got, want = results
    for draws in (3, 24):  # of thousands of tensors, some are lucky in all of three
        losses = losses_in_fp32(cfg.to_dict(), model.state_dict(), u, dy, state, dstate, draws=draws)
        # Both sides have roundings of their own.
        losses = {name: 2 * loss for name, loss in losses.items()}
        if results_close(got, want, "float64", losses):
            return
    assert_results_close(str(cfg), got, want, "float64", losses)


@quick
@given(cfg=configs(), seed=seeds)
def test_a_model_survives_its_dict(cfg, seed):
    assert mb.Mamba2Config.from_dict(cfg.to_dict()) == cfg
    model = mb.Mamba2(cfg, seed=seed)
    other = mb.Mamba2(cfg, seed=seed + 1)
    other.load_state_dict(model.state_dict())
    u = noise(1, 3, cfg.d_model, dtype="float32")
    assert np.array_equal(other(u), model(u))


@settings(quick, max_examples=300)
@given(wrong=wrong_fields())
def test_a_wrong_field_is_named(wrong):
    [(field, _)] = wrong.items()
    with pytest.raises(mb.ConfigError) as caught:
        mb.Mamba2Config(**{"d_model": 256, **wrong})
    # A number that is too small or too large may break the rule of its neighbour.
    neighbours = {"dt_min": ("dt_min", "dt_max")}.get(field, (field,))
    assert str(caught.value).split()[0] in neighbours


@settings(quick, max_examples=300)
@given(
    sizes=st.fixed_dictionaries(
        {
            name: st.one_of(st.integers(-1, 12), st.integers(1, 2**64))
            for name in (
                "d_model",
                "d_state",
                "d_conv",
                "expand",
                "headdim",
                "d_ssm",
                "ngroups",
                "norm_groups",
            )
        }
    )
)
def test_sizes_work_or_are_refused_by_name(sizes):
    """A configuration whose sizes agree, or an error that names a field and its value."""
    try:
        cfg = mb.Mamba2Config(**sizes)
    except mb.ConfigError as error:
        field, value = str(error).split()[0], str(error).split()[-1]
        assert str(sizes[field]) == value
    else:
        assert cfg.d_inner == cfg.expand * cfg.d_model >= cfg.d_ssm == cfg.nheads * cfg.headdim
        assert cfg.nheads % cfg.ngroups == cfg.d_ssm % cfg.norm_groups == 0
        assert cfg.conv_dim == cfg.d_ssm + 2 * cfg.ngroups * cfg.d_state
