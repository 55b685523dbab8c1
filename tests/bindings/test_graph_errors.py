"""A graph serves one backward, with the parameters it was made from."""

import gc
import weakref

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import assert_same, forecaster, mixer, noise, noisy_state

U = noise(2, 5, 8)


def test_a_second_backward_is_refused():
    out = mixer().forward(U)
    out.backward(U)
    for _ in range(2):
        with pytest.raises(mb.GraphError, match="backward was called on this output before"):
            out.backward(U)
    assert np.isfinite(out.y).all()
    assert np.isfinite(out.state.ssm_state).all()


def test_loss_and_output_share_the_one_backward():
    out = mixer().forward(U)
    loss = out.mse_loss(U)
    loss.backward()
    with pytest.raises(mb.GraphError, match="before"):
        out.backward(U)
    with pytest.raises(mb.GraphError, match="before"):
        loss.backward()
    with pytest.raises(mb.GraphError, match="before"):
        out.mse_loss(U)
    assert loss.item() == float(loss)


def test_output_first_then_loss():
    out = mixer().forward(U)
    first, second = out.mse_loss(U), out.mse_loss(2 * U)
    out.backward(U)
    for loss in (first, second):
        with pytest.raises(mb.GraphError, match="before"):
            loss.backward()


def test_of_two_losses_one_has_a_backward():
    model = mixer()
    out = model.forward(U)
    first, second = out.mse_loss(U), out.mse_loss(2 * U)
    want = model.forward(U).mse_loss(2 * U).backward()
    assert_same(dict(second.backward()), dict(want))
    with pytest.raises(mb.GraphError, match="before"):
        first.backward()


def optimizer_step(model):
    mb.optim.SGD(model, lr=0.1).step(model.forward(U).backward(U))


CHANGES = {
    "set": lambda model, path: model.varmap.__setitem__("D", np.ones(4)),
    "update": lambda model, path: model.varmap.update({"D": np.ones(4), "A_log": np.ones(4)}),
    "load_state_dict": lambda model, path: model.load_state_dict(model.state_dict()),
    "load": lambda model, path: (model.varmap.save(path), model.varmap.load(path)),
    "optimizer": lambda model, path: optimizer_step(model),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_backward_after_a_parameter_changed_is_refused(change, tmp_path):
    model = mixer()
    out, other = model.forward(U), model.forward(U)
    loss = other.mse_loss(U)
    CHANGES[change](model, tmp_path / "model.safetensors")
    with pytest.raises(mb.GraphError, match="parameters have changed since this output's forward"):
        out.backward(U)
    with pytest.raises(mb.GraphError, match="parameters have changed since this output's forward"):
        loss.backward()
    assert len(model.forward(U).backward(U)) == 8


def test_another_models_change_is_none_of_its_business():
    model, other = mixer(), mixer()
    out = model.forward(U)
    other.varmap["D"] = np.zeros(4)
    assert len(out.backward(U)) == 8


REFUSED = {
    "shape": (
        lambda model, path: model.varmap.update({"A_log": np.ones(4), "D": np.ones(5)}),
        mb.StateDictError,
    ),
    "dtype": (lambda model, path: model.varmap.update({"D": np.ones(4, "float32")}), mb.DTypeError),
    "name": (lambda model, path: model.load_state_dict({"E": np.ones(4)}), mb.StateDictError),
    "NaN": (lambda model, path: model.varmap.update({"D": np.full(4, np.nan)}), ValueError),
    "file": (lambda model, path: model.varmap.load(path), FileNotFoundError),
    "gradients": (
        lambda model, path: mb.optim.SGD(model).step(mixer(d_state=5).forward(U).backward(U)),
        mb.ShapeError,
    ),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_was_refused_leaves_the_graph(change, tmp_path):
    model = mixer()
    out = model.forward(U)
    attempt, error = REFUSED[change]
    with pytest.raises(error):
        attempt(model, tmp_path / "nothing")
    assert_same(dict(out.backward(U)), dict(mixer().forward(U).backward(U)))


def test_a_wrong_upstream_gradient_leaves_the_graph():
    model = mixer()
    state = noisy_state(model, 2)
    out = model.forward(U, state)
    for dy, dstate in [
        (U[:, :1], None),
        (U.astype("float32"), None),
        ("dy", None),
        (U, model.init_state(3)),
        (U, mixer("float32").init_state(2)),
        (U, 0),
    ]:
        with pytest.raises((TypeError, ValueError)):
            out.backward(dy, dstate)
    assert_same(dict(out.backward(U)), dict(mixer().forward(U, state).backward(U)))


def test_a_wrong_target_leaves_the_graph():
    out = mixer().forward(U)
    for target in (U[0], U.astype("float32"), None):
        with pytest.raises((TypeError, ValueError)):
            out.mse_loss(target)
    assert len(out.mse_loss(U).backward()) == 8


def test_inference_and_steps_leave_the_graph():
    model = mixer()
    out = model.forward(U)
    model(U)
    model.step(U[:, 0], model.init_state(2))
    model.forward(U).backward(U)
    assert len(out.backward(U)) == 8


def test_a_loss_keeps_the_graph_of_an_output_that_is_gone():
    loss = mixer().forward(U).mse_loss(U)
    gc.collect()
    assert len(loss.backward()) == 8


def test_an_output_goes_when_its_last_name_goes():
    out = mixer().forward(U)
    seen = weakref.ref(out)
    del out
    assert seen() is None


def test_two_graphs_of_one_model_stand_apart():
    model, other = mixer(), 2 * U
    first, second = model.forward(U), model.forward(other)
    late, early = second.backward(U), first.backward(U)
    assert_same(dict(early), dict(model.forward(U).backward(U)))
    assert_same(dict(late), dict(model.forward(other).backward(U)))


def test_a_forecasters_graph_obeys_the_same_rules():
    model, x = forecaster(), noise(2, 4, 3)
    out = model.forward(x)
    out.backward(noise(2, 2))
    with pytest.raises(mb.GraphError, match="before"):
        out.mse_loss(noise(2, 2))
    out = model.forward(x)
    model.varmap["head.bias"] = np.zeros(2)
    with pytest.raises(mb.GraphError, match="changed"):
        out.backward(noise(2, 2))
