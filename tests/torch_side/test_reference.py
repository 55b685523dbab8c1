"""The twin against itself: chunked and stepwise forms, states, dtypes, finite differences, edges, errors."""

import math

import numpy as np
import pytest

from assertions import assert_close

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode

from mamba2_bridge.parity.tolerances import tolerance
from mamba2_bridge.torch.reference import (
    Mamba2,
    Mamba2Forecaster,
    State,
    segment_sums,
    ssd_chunked,
    ssd_recurrence,
)

pytestmark = pytest.mark.torch

SMALL = {"d_model": 6, "d_state": 3, "headdim": 3}
OPTIONS = {
    "plain": {},
    "groups": {"ngroups": 2},
    "one_norm_group": {"ngroups": 2, "norm_groups": 1},
    "D_has_hdim": {"D_has_hdim": True},
    "no_rmsnorm": {"rmsnorm": False},
    "norm_before_gate": {"norm_before_gate": True},
    "gated_mlp": {"d_ssm": 6},
    "dt_limit": {"dt_limit": (0.01, 0.05)},
    "biases": {"bias": True},
    "no_conv_bias": {"conv_bias": False},
    "conv1": {"d_conv": 1},
    "conv2": {"d_conv": 2},
    "expand3": {"expand": 3, "headdim": 9},
}


def model_of(option, **more):
    torch.manual_seed(0)
    return Mamba2(**SMALL | OPTIONS[option] | {"dtype": torch.float64} | more)


def random_state(model, batch):
    return State(*(torch.randn_like(zeros) for zeros in model.init_state(batch)))


def numpy_of(tensor):
    return tensor.detach().numpy()


@pytest.mark.parametrize("option", OPTIONS)
def test_step_equals_forward(option):
    model = model_of(option)
    u, state = torch.randn(2, 9, 6, dtype=torch.float64), random_state(model, 2)
    want, want_state = model(u, state, return_state=True)
    for t in range(u.shape[1]):
        y_t, state = model.step(u[:, t], state)
        assert_close(f"y[:, {t}]", numpy_of(y_t), numpy_of(want[:, t]), "value", "float64")
    for name, got, final in zip(State._fields, state, want_state, strict=True):
        assert_close(name, numpy_of(got), numpy_of(final), "state", "float64")


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 9])
@pytest.mark.parametrize("scan", ["recurrence", "chunked"])
def test_a_sequence_may_be_cut_anywhere(scan, cut):
    model = model_of("groups", scan=scan, chunk_size=4)
    u, state = torch.randn(2, 9, 6, dtype=torch.float64), random_state(model, 2)
    want, want_state = model(u, state, return_state=True)
    first, middle = model(u[:, :cut], state, return_state=True)
    second, final = model(u[:, cut:], middle, return_state=True)
    assert_close("y", numpy_of(torch.cat([first, second], 1)), numpy_of(want), "value", "float64")
    for name, got, wanted in zip(State._fields, final, want_state, strict=True):
        assert_close(name, numpy_of(got), numpy_of(wanted), "state", "float64")


@pytest.mark.parametrize("chunk_size", [1, 4, 9, 64])
def test_chunked_scan_equals_the_recurrence_with_large_decays(chunk_size):
    torch.manual_seed(0)
    x, B, C = (torch.randn(2, 9, k, 3, dtype=torch.float64) for k in (4, 2, 2))
    dt, A = torch.rand(2, 9, 4, dtype=torch.float64) * 4, -torch.exp(torch.randn(4, dtype=torch.float64) * 3)
    init = torch.randn(2, 4, 3, 3, dtype=torch.float64)
    inputs = [tensor.requires_grad_() for tensor in (x, dt, A, B, C, init)]
    want = ssd_recurrence(x, dt, A, B, C, None, init)
    got = ssd_chunked(x, dt, A, B, C, None, init, chunk_size=chunk_size)
    up = [torch.randn_like(tensor) for tensor in want]
    for name, a, b in zip(["y", "final"], got, want, strict=True):
        assert_close(name, numpy_of(a), numpy_of(b), "value", "float64")
    grads = zip(torch.autograd.grad(got, inputs, up), torch.autograd.grad(want, inputs, up), strict=True)
    for name, (a, b) in zip(["x", "dt", "A", "B", "C", "init"], grads, strict=True):
        assert_close(f"grad.{name}", numpy_of(a), numpy_of(b), "grad", "float64")


def test_short_segments_keep_their_digits_after_a_long_sum():
    a = torch.tensor([1e8, 0.1, 0.2], dtype=torch.float32)
    assert_close("0.1 + 0.2", numpy_of(segment_sums(a)[2, 0]), 0.3, "value", "float32")
    assert segment_sums(a)[0, 1].item() == -math.inf


def test_gradient_of_A_survives_large_steps_in_float32():
    """A difference of cumulative sums loses three digits of it here."""
    torch.manual_seed(0)
    x, B, C = (torch.randn(1, 512, k, 4) for k in (2, 1, 1))
    dt, A = torch.rand(1, 512, 2) * 0.5 + 1.75, torch.tensor([-1.0, -0.01])

    def gradient(dtype):
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (x, dt, A, B, C)]
        scan = ssd_chunked(*inputs, chunk_size=256) if dtype == torch.float32 else ssd_recurrence(*inputs)
        return numpy_of(torch.autograd.grad(scan[0].sum(), inputs[2])[0])

    assert_close("grad.A", gradient(torch.float32), gradient(torch.float64), "grad", "float32")


class RecordDtypes(TorchDispatchMode):
    """Collect the dtype of every floating-point tensor that any operation makes, in forward and backward."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.seen.add(leaf.dtype)
        return result


@pytest.mark.parametrize("scan", ["recurrence", "chunked"])
@pytest.mark.parametrize("option", OPTIONS)
def test_every_intermediate_is_float64(option, scan):
    model = model_of(option, scan=scan)
    with RecordDtypes() as record:
        model(torch.randn(1, 3, 6, dtype=torch.float64)).square().mean().backward()
    assert record.seen == {torch.float64}


@pytest.mark.parametrize("scan", ["recurrence", "chunked"])
@pytest.mark.parametrize("option", OPTIONS)
def test_gradients_equal_finite_differences(option, scan):
    model = model_of(option, scan=scan, chunk_size=2)
    names, parameters = zip(*model.named_parameters(), strict=True)
    u = torch.randn(1, 3, model.d_model, dtype=torch.float64, requires_grad=True)
    state = [part.requires_grad_() for part in random_state(model, 1)]

    def run(u, conv_state, ssm_state, *values):
        named = dict(zip(names, values, strict=True))
        out, final = torch.func.functional_call(
            model, named, (u, State(conv_state, ssm_state)), {"return_state": True}
        )
        return out, final.ssm_state

    assert torch.autograd.gradcheck(run, (u, *state, *parameters), fast_mode=True)


@pytest.mark.parametrize("scan", ["recurrence", "chunked"])
@pytest.mark.parametrize(("batch", "seqlen"), [(0, 5), (2, 0), (0, 0)])
def test_nothing_in_nothing_out(batch, seqlen, scan):
    model = model_of("plain", scan=scan)
    state = random_state(model, batch)
    y, final = model(torch.zeros(batch, seqlen, 6, dtype=torch.float64), state, return_state=True)
    assert y.shape == (batch, seqlen, 6)
    if seqlen == 0:
        assert torch.equal(final.conv_state, state.conv_state)
        assert torch.equal(final.ssm_state, state.ssm_state)


@pytest.mark.parametrize(
    ("bounds", "passes"), [((0.0, 25.0), True), ((25.0, 30.0), True), ((0.0, 24.0), False)]
)
def test_clamp_passes_gradients_at_its_bounds(bounds, passes):
    """Above 20 softplus is the identity, so a time step can lie exactly at a bound."""
    model = model_of("plain", dt_limit=bounds)
    with torch.no_grad():
        model.dt_bias.fill_(25.0)
        model.in_proj.weight[-model.nheads :] = 0
    model(torch.randn(1, 3, 6, dtype=torch.float64)).sum().backward()
    assert ((model.dt_bias.grad != 0) == passes).all()


def test_initial_values_lie_in_their_ranges():
    torch.manual_seed(0)
    model = Mamba2(64, headdim=1, d_state=4, A_init_range=(2, 3), dt_min=0.01, dt_max=0.02, conv_init=0.1)
    dt = torch.nn.functional.softplus(model.dt_bias)
    A = model.A_log.exp()
    rounding = tolerance("value", "float32").bound()
    assert 0.01 * (1 - rounding) <= dt.min() < 0.011
    assert 0.019 < dt.max() <= 0.02 * (1 + rounding)
    assert 2 * (1 - rounding) <= A.min() < 2.1
    assert 2.9 < A.max() <= 3 * (1 + rounding)
    assert 0.09 < model.conv1d.weight.abs().max() <= 0.1
    assert (model.D == 1).all()
    assert (model.norm.weight == 1).all()
    floored = torch.nn.functional.softplus(Mamba2(8, headdim=1, dt_max=2e-3, dt_init_floor=0.5).dt_bias)
    assert_close("dt", numpy_of(floored), np.full(16, 0.5, np.float32), "value", "float32")


def test_state_spaces_names():
    names = set(model_of("biases").state_dict())
    assert names == {
        "in_proj.weight", "in_proj.bias", "conv1d.weight", "conv1d.bias", "dt_bias", "A_log", "D",
        "norm.weight", "out_proj.weight", "out_proj.bias",
    }  # fmt: skip
    assert model_of("conv2").conv1d.weight.shape == (12 + 2 * 3, 1, 2)
    assert "norm.weight" not in model_of("no_rmsnorm").state_dict()


def forecaster(**more):
    torch.manual_seed(0)
    return Mamba2Forecaster(2, 3, 2, **SMALL | {"dtype": torch.float64} | more)


def test_forecaster_predicts_from_the_last_timestep():
    model = forecaster()
    x = torch.randn(2, 7, 2, dtype=torch.float64)
    want, want_states = model(x, return_states=True)
    assert want.shape == (2, 3)
    states = model.init_states(2)
    for t in range(7):
        got, states = model.step(x[:, t], states)
    assert_close("y", numpy_of(got), numpy_of(want), "value", "float64")
    for i, (a, b) in enumerate(zip(states, want_states, strict=True)):
        assert_close(f"states[{i}]", numpy_of(a.ssm_state), numpy_of(b.ssm_state), "state", "float64")


def test_forecaster_gradients_equal_finite_differences():
    model = forecaster(scan="chunked", chunk_size=2)
    names, parameters = zip(*model.named_parameters(), strict=True)
    x = torch.randn(1, 3, 2, dtype=torch.float64)

    def run(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, parameters, fast_mode=True)


def test_forecaster_names():
    names = set(forecaster().state_dict())
    assert {"encoder.weight", "encoder.bias", "norm_f.weight", "head.weight", "head.bias"} <= names
    assert {"layers.1.norm.weight", "layers.1.mixer.in_proj.weight", "layers.0.mixer.A_log"} <= names
    assert len(names) == 5 + 2 * 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headdim": 5}, "headdim must divide d_ssm=12, got 5"),
        ({"ngroups": 3}, "ngroups must divide nheads=4, got 3"),
        ({"norm_groups": 5}, "norm_groups must divide d_ssm=12, got 5"),
        ({"d_ssm": 24}, "d_ssm must be between 1 and d_inner=12, got 24"),
    ],
)
def test_wrong_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Mamba2(**SMALL | options)


def test_wrong_inputs_are_refused():
    model = model_of("plain")
    u = torch.randn(2, 3, 6, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"u must have shape \(batch, seqlen, d_model=6\), got \(2, 3, 5\)"):
        model(u[..., :5])
    with pytest.raises(ValueError, match=r"u must have the model's dtype, torch.float64, got torch.float32"):
        model(u.float())
    with pytest.raises(
        ValueError, match=r"conv_state must be .* of shape \(2, 18, 3\), got .* of \(1, 18, 3\)"
    ):
        model(u, model.init_state(1))
    model.scan = "quick"
    with pytest.raises(ValueError, match="scan must be 'recurrence' or 'chunked', got 'quick'"):
        model(u)
    with pytest.raises(ValueError, match="n_layer must be at least 1, got 0"):
        Mamba2Forecaster(1, 1, 0, **SMALL)
    with pytest.raises(ValueError, match="states must hold one state for each of 2 layers, got 1"):
        forecaster()(u[..., :2], model.init_state(2)[:1])
    with pytest.raises(ValueError, match="seqlen >= 1"):
        forecaster()(u[:, :0, :2])


@pytest.mark.parametrize("scan", [ssd_recurrence, ssd_chunked])
def test_the_scan_does_not_broadcast(scan):
    x, B, dt, A = torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 2, 6), torch.zeros(2, 3, 4), torch.zeros(4)
    for name, arguments in {
        "dt": (x, dt[:, :, :1], A, B, B),
        "A": (x, dt, A[:1], B, B),
        "C": (x, dt, A, B, B[:1]),
        "D": (x, dt, A, B, B, A[:1]),
        "initial_state": (x, dt, A, B, B, None, torch.zeros(1, 4, 5, 6)),
    }.items():
        with pytest.raises(ValueError, match=f"{name} must have shape"):
            scan(*arguments)
    with pytest.raises(ValueError, match="dt must have the dtype of x"):
        scan(x, dt.double(), A, B, B)
    with pytest.raises(ValueError, match="ngroups must divide nheads=4, got 3"):
        scan(x, dt, A, torch.zeros(2, 3, 3, 6), torch.zeros(2, 3, 3, 6))
    with pytest.raises(ValueError, match="chunk_size must be at least 1, got 0"):
        ssd_chunked(x, dt, A, B, B, chunk_size=0)


def test_backward_is_linear_in_seqlen():
    """Elements that backward writes: four times the tokens, not sixteen times the elements."""
    x = torch.zeros(1, 64, 1, 1, requires_grad=True)
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            sizes.extend(
                leaf.numel()
                for leaf in torch.utils._pytree.tree_leaves(result)
                if isinstance(leaf, torch.Tensor)
            )
            return result

    def work(seqlen):
        sizes.clear()
        part = x.expand(1, 64, 1, 1)[:, :seqlen]
        y, _ = ssd_recurrence(part, part[..., 0], -torch.ones(1), part, part)
        with Sizes():
            y.sum().backward()
        return sum(sizes)

    assert work(64) < 5 * work(16)
