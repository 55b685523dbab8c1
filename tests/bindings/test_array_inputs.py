"""Arrays in: anything that numpy takes as an array, of exactly the model's dtype."""

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import DTYPES, mixer, noise


def unaligned(values):
    buffer = np.zeros(values.nbytes + 1, np.uint8)
    shifted = buffer[1:].view(values.dtype).reshape(values.shape)
    shifted[...] = values
    assert not shifted.flags.aligned
    return shifted


def read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


def every_second(values):
    wide = np.full((*values.shape[:-1], 2 * values.shape[-1]), np.nan, values.dtype)
    wide[..., ::2] = values
    return wide[..., ::2]


class Exported:
    """An object that gives its array by numpy's protocol."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values


LAYOUTS = {
    "contiguous": lambda a: a,
    "Fortran order": np.asfortranarray,
    "every second": every_second,
    "reversed": lambda a: np.ascontiguousarray(a[::-1, ::-1, ::-1])[::-1, ::-1, ::-1],
    "transposed": lambda a: np.ascontiguousarray(a.transpose(2, 0, 1)).transpose(1, 2, 0),
    "swapped bytes": lambda a: a.astype(a.dtype.newbyteorder()),
    "swapped bytes, reversed": lambda a: np.ascontiguousarray(a[::-1]).astype(a.dtype.newbyteorder())[::-1],
    "unaligned": unaligned,
    "unaligned, Fortran order": lambda a: unaligned(a.T).T,
    "read-only": read_only,
    "subclass": lambda a: a.view(np.recarray),
    "memoryview": memoryview,
    "protocol": Exported,
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_an_input_changes_nothing(layout, dtype):
    model, u = mixer(dtype), noise(2, 5, 8, dtype=dtype)
    given = LAYOUTS[layout](u)
    assert np.array_equal(model(given), model(u))
    out, dy = model.forward(given), LAYOUTS[layout](u + 1)
    want = model.forward(u)
    assert np.array_equal(out.y, want.y)
    assert out.mse_loss(dy).item() == want.mse_loss(u + 1).item()
    got, want = out.backward(dy), want.backward(u + 1)
    assert np.array_equal(got.input, want.input)
    assert all(np.array_equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_a_parameter_and_of_a_state_changes_nothing(layout):
    model = mixer()
    values = noise(*model.varmap["conv1d.weight"].shape)
    model.varmap["conv1d.weight"] = LAYOUTS[layout](values)
    assert np.array_equal(model.varmap["conv1d.weight"], values)
    conv, ssm = noise(2, 24, 3), noise(2, 4, 4, 4)
    state = mb.Mamba2State(LAYOUTS[layout](conv), np.asfortranarray(ssm))
    assert np.array_equal(state.conv_state, conv)
    assert np.array_equal(state.ssm_state, ssm)


def test_broadcast_arrays_are_arrays():
    model = mixer()
    row = noise(8)
    assert np.array_equal(model(np.broadcast_to(row, (3, 4, 8))), model(np.tile(row, (3, 4, 1))))
    grads = model.forward(np.ones((3, 4, 8))).backward(np.broadcast_to(1.0, (3, 4, 8)))
    assert np.array_equal(grads.input, model.forward(np.ones((3, 4, 8))).backward(np.ones((3, 4, 8))).input)


def test_lists_are_float64():
    u = noise(2, 3, 8)
    assert np.array_equal(mixer()(u.tolist()), mixer()(u))
    with pytest.raises(mb.DTypeError, match="u must be float32, got float64"):
        mixer("float32")(u.tolist())


@pytest.mark.torch
def test_torch_tensors_are_arrays():
    torch = pytest.importorskip("torch")
    model, u = mixer(), noise(2, 3, 8)
    assert np.array_equal(model(torch.from_numpy(u)), model(u))
    assert np.array_equal(model(torch.from_numpy(u.T.copy()).permute(2, 1, 0)), model(u))
    model.varmap["D"] = torch.arange(4, dtype=torch.float64)
    assert model.varmap["D"].tolist() == [0, 1, 2, 3]
    with pytest.raises(mb.DTypeError, match="u must be float64, got float32"):
        model(torch.from_numpy(u).float())


def test_the_input_is_copied():
    model, u = mixer(), noise(2, 5, 8)
    kept = u.copy()
    out = model.forward(u)
    u[...] = np.nan
    assert np.array_equal(out.backward(kept).input, model.forward(kept).backward(kept).input)


FOREIGN = {
    "float16": "float16",
    "longdouble": f"float{8 * np.dtype(np.longdouble).itemsize}",
    "int64": "int64",
    "uint8": "uint8",
    "bool": "bool",
    "complex64": "complex64",
    "complex128": "complex128",
    "object": "object",
    "U1": "<U1",
    "M8[s]": "datetime64",
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("foreign", [*FOREIGN, "the other"])
def test_another_dtype_is_never_cast(foreign, dtype):
    model = mixer(dtype)
    other = {"float32": "float64", "float64": "float32"}[dtype]
    name = FOREIGN.get(foreign, other)
    given = np.zeros((1, 2, 8), foreign if foreign != "the other" else other)
    message = f"must be {dtype}, got {name}"
    with pytest.raises(mb.DTypeError, match=f"u {message}"):
        model(given)
    with pytest.raises(mb.DTypeError, match=f"u {message}"):
        model.forward(given)
    with pytest.raises(mb.DTypeError, match=f"u_t {message}"):
        model.step(given[:, 0], model.init_state(1))
    out = model.forward(np.zeros((1, 2, 8), dtype))
    with pytest.raises(mb.DTypeError, match=f"dy {message}"):
        out.backward(given)
    with pytest.raises(mb.DTypeError, match=f"target {message}"):
        out.mse_loss(given)
    with pytest.raises(mb.DTypeError, match=r"^D must be"):
        model.varmap["D"] = given[0, 0, :4]


def test_a_state_of_another_dtype_is_never_cast():
    model, single = mixer("float64"), mixer("float32")
    u = np.zeros((1, 2, 8))
    with pytest.raises(mb.DTypeError, match=r"state\.conv_state must be float64, got float32"):
        model.forward(u, single.init_state(1))
    with pytest.raises(mb.DTypeError, match=r"state\.conv_state must be float64, got float32"):
        model.step(u[:, 0], single.init_state(1))
    with pytest.raises(mb.DTypeError, match=r"dstate\.conv_state must be float64, got float32"):
        model.forward(u).backward(u, single.init_state(1))
    with pytest.raises(mb.DTypeError, match="ssm_state must be float64 as conv_state, got float32"):
        mb.Mamba2State(np.zeros((1, 24, 3)), np.zeros((1, 4, 4, 4), "float32"))
    with pytest.raises(mb.DTypeError, match="conv_state must be float32 or float64, got int64"):
        mb.Mamba2State(np.zeros((1, 24, 3), "int64"), np.zeros((1, 4, 4, 4)))


def test_dtype_is_checked_before_shape():
    model = mixer()
    wrong = np.zeros(3, "float32")
    with pytest.raises(mb.DTypeError):
        model(wrong)
    with pytest.raises(mb.DTypeError):
        model.step(wrong, model.init_state(1))
    with pytest.raises(mb.DTypeError):
        model.forward(np.zeros((1, 2, 8))).backward(wrong)
    with pytest.raises(mb.DTypeError):
        model.forward(np.zeros((1, 2, 8))).mse_loss(wrong)
    with pytest.raises(mb.DTypeError):
        model.varmap["D"] = wrong
    with pytest.raises(mb.DTypeError):
        model.forward(np.zeros((1, 2, 8)), mixer("float32").init_state(5))


@pytest.mark.parametrize("nothing", [None, object(), "tokens", {}, [[1.0], [1.0, 2.0]]])
def test_what_is_no_array_is_refused(nothing):
    with pytest.raises((mb.DTypeError, ValueError), match=r"u must be float64|inhomogeneous"):
        mixer()(nothing)


def test_a_mask_is_not_lost_in_silence():
    masked = np.ma.masked_array(noise(1, 3, 8), mask=True)
    with pytest.raises(mb.DTypeError, match=r"^u must be a plain array, got a masked one"):
        mixer()(masked)
    with pytest.raises(mb.DTypeError, match=r"^D must be a plain array"):
        mixer().varmap["D"] = np.ma.masked_array(np.ones(4), mask=True)


def test_what_numpy_refuses_is_refused_by_name():
    with pytest.raises(mb.ShapeError, match=r"^u can't be taken as an array: "):
        mixer()([[[1.0, 2.0], [3.0]]])


@pytest.mark.torch
def test_a_torch_tensor_with_a_graph_is_refused_by_name():
    torch = pytest.importorskip("torch")
    with pytest.raises(mb.DTypeError, match=r"^u can't be taken as an array: .*detach"):
        mixer()(torch.ones(1, 2, 8, dtype=torch.float64, requires_grad=True))
