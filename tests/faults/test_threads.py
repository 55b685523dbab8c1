"""Several Python threads, on one model and on several, while others change parameters."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import mamba2_bridge as mb
from native_models import assert_same, mixer, noise, noisy_state, run

WAIT = 60


def together(*works):
    """Run all works at once from the same moment; a deadlock fails instead of hanging."""
    start = threading.Barrier(len(works))

    def begin(work):
        start.wait(WAIT)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(WAIT) for future in [pool.submit(begin, work) for work in works]]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_one_model_from_many_threads(threads):
    before = mb.get_num_threads()
    mb.set_num_threads(threads)
    try:
        model = mixer()
        inputs = [noise(2, 30, 8, seed=seed) for seed in range(4)]
        want = [run(model, u) for u in inputs]
        got = together(*(lambda u=u: [run(model, u) for _ in range(5)] for u in inputs))
    finally:
        mb.set_num_threads(before)
    for repeated, expected in zip(got, want, strict=True):
        for results in repeated:
            assert_same(results, expected)


def test_models_of_their_own_train_side_by_side():
    def train(seed):
        model = mixer(seed=seed)
        optimizer = mb.optim.AdamW(model)
        for step in range(5):
            grads = (
                model.forward(noise(2, 9, 8, seed=step)).mse_loss(noise(2, 9, 8, seed=-step + 50)).backward()
            )
            mb.optim.clip_grad_norm(grads, 1.0)
            optimizer.step(grads)
        return model.state_dict()

    want = [train(seed) for seed in range(4)]
    for got, expected in zip(together(*(lambda s=seed: train(s) for seed in range(4))), want, strict=True):
        assert_same(got, expected)


def test_an_update_is_seen_as_a_whole():
    """Others see all of the old parameters or all of the new ones, never some of each."""
    model, u = mixer(), noise(1, 20, 8)
    sides = [mixer(seed=seed).state_dict() for seed in (0, 1)]
    expected = []
    for values in sides:
        model.varmap.update(values)
        expected.append(model(u).tobytes())
    stop = threading.Event()

    def change():
        try:
            for turn in range(60):
                model.varmap.update(sides[turn % 2])
        finally:
            stop.set()

    def watch():
        seen = set()
        while not stop.is_set():
            seen.add(model(u).tobytes())
        return seen

    _, *seen = together(change, watch, watch)
    assert set().union(*seen) <= set(expected)


def test_a_backward_beside_changes_is_right_or_refused():
    model, u = mixer(), noise(1, 20, 8)
    sides = [mixer(seed=seed).state_dict() for seed in (0, 1)]
    expected = {}
    for values in sides:
        model.varmap.update(values)
        out = model.forward(u)
        expected[out.y.tobytes()] = dict(out.backward(u))
    stop = threading.Event()

    def change():
        try:
            for turn in range(40):
                model.varmap.update(sides[turn % 2])
        finally:
            stop.set()

    def differentiate():
        while not stop.is_set():
            out = model.forward(u)
            y = out.y.tobytes()
            try:
                grads = dict(out.backward(u))
            except mb.GraphError as error:
                assert "changed" in str(error)  # noqa: PT017 - being refused is one of two right answers
            else:
                assert_same(grads, expected[y])

    together(change, differentiate, differentiate)


def test_one_output_has_one_backward_whoever_asks():
    model, u = mixer(), noise(2, 20, 8)
    for _ in range(10):
        out = model.forward(u)
        loss = out.mse_loss(u)

        def ask(backward):
            try:
                return len(backward())
            except mb.GraphError:
                return 0

        asked = [lambda out=out: ask(lambda: out.backward(u)), lambda loss=loss: ask(loss.backward)] * 2
        assert sorted(together(*asked)) == [0, 0, 0, 8]


def test_everything_at_once(tmp_path):
    model, u = mixer(), noise(2, 20, 8)
    optimizer = mb.optim.AdamW(model, lr=1e-4)
    state = noisy_state(model, 2)
    grads = model.forward(u).backward(u)

    def train():
        for _ in range(10):
            try:
                optimizer.step(model.forward(u).backward(u))
            except mb.GraphError:
                continue

    def gradients():
        for _ in range(10):
            grads.add_(grads)
            mb.optim.clip_grad_norm(grads, 1.0)
            assert all(np.isfinite(norm) for norm in grads.norms().values())

    def files():
        for _ in range(5):
            model.varmap.save(tmp_path / "model")
            model.varmap.load(tmp_path / "model")

    def read():
        for _ in range(10):
            assert np.isfinite(model.step(u[:, 0], state)[0]).all()
            assert len(model.state_dict()) == len(optimizer.state_dict()) / 2 - 3
            optimizer.lr = optimizer.lr

    def threads():
        for n in (1, 2, 3, 2) * 3:
            mb.set_num_threads(n)

    before = mb.get_num_threads()
    try:
        together(train, train, gradients, files, read, threads)
    finally:
        mb.set_num_threads(before)
