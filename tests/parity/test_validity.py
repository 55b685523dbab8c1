"""Ways in which a comparison could seem to pass while less was compared than meets the eye."""

from dataclasses import replace

import numpy as np
import pytest

from mamba2_bridge.exceptions import ConfigError
from mamba2_bridge.parity import AdamW, Batch, Case, Runner, compare

X = np.array([[1.0, 2.0], [3.0, -4.0]])
CASE = Case("a line", {"w": np.array([3.0, 0.5])}, [Batch({"x": X}, {"out": np.ones_like(X)})])


class Line(Runner):
    """y = w x, gradients and gradient descent; what tests break is a method of its own."""

    name = "line"

    def load(self, case, dtype):
        self.case, self.dtype = case, dtype
        self.w = case.params["w"].astype(dtype)

    def forward(self, batch, feed=None):
        self.batch = batch
        made = {"out": self.output(batch.inputs["x"])}
        if batch.target is not None:
            made["loss"] = np.asarray(np.square(made["out"] - batch.target).mean(), np.float64)
            self.dy = 2 * (made["out"] - batch.target) / batch.target.size
        else:
            self.dy = batch.upstream.get("out", np.zeros_like(made["out"]))
        return made

    def output(self, x):
        return self.w * x

    def backward(self):
        self.dw = (self.dy * self.batch.inputs["x"]).sum(0)
        return {"x": self.w * self.dy, "param.w": self.dw}

    def step(self):
        self.w -= self.case.optimizer.lr * self.dw
        return {"param.w": self.w}


def messages(candidate, case=CASE, reference=None):
    report = compare(reference or Line(), candidate, case, dtypes=["float64"])
    return [str(result) for result in report.failures]


def test_sides_that_write_to_one_buffer_are_told_apart():
    buffer = np.empty_like(X)

    class Reusing(Line):
        def output(self, x):
            return np.multiply(self.w, x, out=buffer) if self.dtype == "float64" else super().output(x)

    class Wrong(Reusing):
        def output(self, x):
            return np.multiply(super().output(x), 2, out=buffer)

    assert messages(Reusing(), reference=Reusing()) == []
    assert "out[1, 0]: got 18.0, want 9.0" in messages(Wrong(), reference=Reusing())[0]


def test_parameters_that_steps_change_in_place_are_compared_after_each():
    class Late(Line):
        """All steps at the end: only what lies between is wrong."""

        def step(self):
            self.taken = [*getattr(self, "taken", []), self.dw]
            if len(self.taken) == 2:
                for dw in self.taken:
                    self.w -= self.case.optimizer.lr * dw
            return {"param.w": self.w}

        def load(self, case, dtype):
            super().load(case, dtype)
            self.taken = []

    steps = [Batch({"x": X}, {"out": np.ones_like(X)}), Batch({"x": 2 * X}, {"out": np.ones_like(X)})]
    found = messages(Late(), replace(CASE, batches=steps, optimizer=AdamW(0.125)))
    assert len(found) == 1
    assert "step 1: param.w[" in found[0]


def test_integer_inputs_that_a_side_changes_are_the_others_own():
    class Lookup(Line):
        def output(self, x):
            picked = self.w[x]
            x += 1 - 2 * x  # the other row
            return picked

        def backward(self):
            return {}

    batch = Batch({"x": np.array([0, 1, 1])})
    report = compare(Lookup(), Lookup(), replace(CASE, batches=[batch], untrained=("w",)))
    assert report.passed
    assert batch.inputs["x"].tolist() == [0, 1, 1]


def test_an_output_is_compared_whatever_the_candidate_calls_it():
    class Silent(Line):
        intermediates = ("out",)

        def forward(self, batch, feed=None):
            super().forward(batch, feed)
            return {}

    report = compare(Line(), Silent(), replace(CASE, batches=[replace(CASE.batch, target=X, upstream={})]))
    assert "a line in float64: out: missing" in map(str, report.failures)


def test_a_gradient_that_neither_side_has_fails_unless_the_case_says_so():
    class Cut(Line):
        def backward(self):
            return {"x": super().backward()["x"]}

    assert messages(Cut(), reference=Cut()) == [
        "a line in float64: grad.param.w: missing, in the reference too"
    ]
    assert messages(Cut(), replace(CASE, untrained=("w*",)), Cut()) == []


def test_a_parameter_that_neither_sides_step_tells_of_fails():
    class Mute(Line):
        def step(self):
            return {"exp_avg.w": super().step()["param.w"]}

    case = replace(CASE, optimizer=AdamW(0.125))
    assert messages(Mute(), case, Mute()) == [
        "a line in float64, step 1: param.w: missing, in the reference too"
    ]


def test_integer_outputs_keep_their_dtype():
    class Rank(Line):
        def forward(self, batch, feed=None):
            made = super().forward(batch, feed)
            return {**made, "rank": made["out"].argsort(0)}

    class Floating(Rank):
        def forward(self, batch, feed=None):
            made = super().forward(batch, feed)
            return {**made, "rank": made["rank"].astype(self.dtype)}

    assert messages(Rank(), reference=Rank()) == []
    assert messages(Floating(), reference=Rank()) == ["a line in float64: rank: dtype float64, must be int64"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": []}, "a line: a case needs at least one batch, got none"),
        (
            {"batches": [CASE.batch, CASE.batch]},
            "batches after the first are for optimizer steps: got 2 and no optimizer",
        ),
        (
            {"batches": [replace(CASE.batch, target=X)]},
            "batch 0 has both a target and upstream gradients to out",
        ),
        ({"by_token": True, "optimizer": AdamW(0.1)}, "by token there are no gradients"),
        (
            {"batches": [replace(CASE.batch, upstream={"y": X})]},
            r"upstream gradients must be to outputs \(out\), got y",
        ),
        (
            {"batches": [replace(CASE.batch, upstream={})]},
            "line gives gradients, but the batch has neither a target nor upstream gradients",
        ),
    ],
)
def test_a_case_that_compares_less_than_it_seems_to_is_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        compare(Line(), Line(), replace(CASE, **change))


def test_names_of_cases_differ():
    with pytest.raises(ConfigError, match="names of cases must differ, got more than one a line"):
        compare(Line(), Line(), [CASE, replace(CASE, optimizer=AdamW(0.1))])
