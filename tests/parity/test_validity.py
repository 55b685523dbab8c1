"""Ways in which a comparison could seem to pass while less was compared than meets the eye."""

from dataclasses import replace

import numpy as np
import pytest

from mamba2_bridge.exceptions import ConfigError, ParityError
from mamba2_bridge.parity import AdamW, Batch, Case, Runner, Stage, compare

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
        (
            {"batches": [replace(CASE.batch, upstream={"out": 0 * X})]},
            "all upstream gradients are zero",
        ),
        (
            {"batches": [CASE.batch, replace(CASE.batch, upstream={})], "optimizer": AdamW(0.1)},
            "batch 1 is for an optimizer step and has neither a target nor upstream",
        ),
        (
            {
                "batches": [CASE.batch, replace(CASE.batch, upstream={"y": X})],
                "optimizer": AdamW(0.1),
            },
            r"upstream gradients must be to outputs \(out\), got y",
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


def test_element_types_may_come_one_by_one():
    wrong = replace(CASE, name="another")

    class Wrong(Line):
        def output(self, x):
            return super().output(x) * (2 if self.case.name == "another" else 1)

    for dtypes in (map(str, ("float64", "float32")), ["float64"]):
        assert not compare(Line(), Wrong(), [CASE, wrong], dtypes=dtypes).passed
    for dtypes in ("float64", [], ["fp32"]):
        with pytest.raises(ConfigError, match="dtypes must be some of float32, float64"):
            compare(Line(), Line(), CASE, dtypes=dtypes)


def test_what_a_candidate_calls_intermediate_is_compared_where_the_reference_has_it():
    class Hiding(Line):
        intermediates = ("x", "param.w")

        def backward(self):
            return {name: 7 * grad for name, grad in super().backward().items()}

    assert len(messages(Hiding())) == 2


def test_a_reference_that_is_random_is_refused():
    class Dropping(Line):
        rng = np.random.default_rng(0)

        def output(self, x):
            return super().output(x * self.rng.integers(0, 2, x.shape))

    with pytest.raises(ConfigError, match="line isn't repeatable: out differs by"):
        compare(Dropping(), Line(), CASE)


def test_a_reference_may_change_what_it_was_given():
    class Zeroing(Line):
        def backward(self):
            grads = super().backward()
            self.case.params["w"][:] = 0
            self.batch.inputs["x"][:] = 0
            return grads

    class Wrong(Line):
        def backward(self):
            return {name: 3 * grad for name, grad in super().backward().items()}

    assert messages(Line(), reference=Zeroing()) == []
    assert len(messages(Wrong(), reference=Zeroing())) == 2
    assert CASE.params["w"].tolist() == [3.0, 0.5]


def test_a_reference_in_the_wrong_precision_is_no_reference():
    class Narrow(Line):
        def output(self, x):
            return super().output(x).astype(np.float32)

    (message,) = messages(Line(), reference=Narrow())
    assert "out: the reference's dtype float32, must be float64" in message


def test_a_loss_that_is_wrong_from_the_second_batch_on_is_the_models():
    class Keeping(Line):
        kept = 0.0

        def output(self, x):
            made = super().output(x) + self.kept
            self.kept = made.mean()
            return made

    batches = [Batch({"x": X}, target=2 * X), Batch({"x": -X}, target=X)]
    case = replace(CASE, batches=batches, optimizer=AdamW(0.125))
    report = compare(Line(), Keeping(), case, dtypes=["float64"])
    (first,) = report.divergences
    assert (first.tensor, first.step, first.stage) == ("loss", 2, "model")


def test_where_a_candidate_raises_is_told():
    class Raising(Line):
        def step(self):
            raise KeyError("w")

    (message,) = messages(Raising(), replace(CASE, optimizer=AdamW(0.125)))
    assert message.startswith(
        "a line in float64, step 1: every tensor: KeyError: 'w' (in step, test_validity.py line "
    )


def test_a_side_without_an_optimizer_is_named():
    class Stepless(Line):
        step = Runner.step

    case = replace(CASE, optimizer=AdamW(0.125))
    with pytest.raises(ConfigError, match="line takes no optimizer steps: compare it in a case without"):
        compare(Stepless(), Line(), case)
    assert "ConfigError: line takes no optimizer steps" in messages(Stepless(), case)[0]


def test_moments_that_one_side_does_not_tell_are_left_out():
    class Telling(Line):
        def step(self):
            return {**super().step(), "exp_avg.w": self.dw}

    case = replace(CASE, optimizer=AdamW(0.125))
    assert messages(Telling(), case) == messages(Line(), case, Telling()) == []


def test_steps_on_gradients_that_are_rounding_are_not_compared():
    """The gradient to a shift in front of a centring is zero but for rounding, which AdamW blows up."""

    class Centred(Line):
        def __init__(self, order):
            self.order = order

        def backward(self):
            grads = super().backward()
            parts = [0.1, 0.2, -0.3] if self.order else [-0.3, 0.2, 0.1]
            noise = np.sum(np.array(parts, self.dtype)) + np.zeros(2, self.dtype)
            noise = noise if noise.any() else np.full(2, np.finfo(self.dtype).eps, self.dtype) / 8
            return {**grads, "param.w": noise}

        def step(self):
            return {"param.w": self.w - 0.1 * np.sign(self.backward()["param.w"] - (0 if self.order else 1))}

    case = replace(CASE, optimizer=AdamW(0.125))
    report = compare(Centred(True), Centred(False), case, dtypes=["float64"])
    assert not [result for result in report.results if result.phase == "step"]


def test_whole_numbers_and_masks_are_no_matter_of_tolerance():
    class Counting(Line):
        def __init__(self, count):
            self.count = count

        def forward(self, batch, feed=None):
            return {**super().forward(batch, feed), "count": self.count}

    big = np.array([2**60])
    (message,) = messages(Counting(big + 1), reference=Counting(big))
    assert "whole numbers differ" in message
    masked = np.ma.array(np.ones(2), mask=[True, False])
    (message,) = messages(Counting(masked), reference=Counting(np.ones(2)))
    assert "a masked array" in message


def test_a_case_in_which_nothing_was_compared_is_no_pass():
    class Nothing(Line):
        def forward(self, batch, feed=None):
            return {} if self.case.name == "another" else super().forward(batch, feed)

        def backward(self):
            return {}

    alone = replace(CASE, batches=[replace(CASE.batch, upstream={})])
    report = compare(Nothing(), Nothing(), [alone, replace(alone, name="another")])
    assert not report.failures
    assert not report.passed
    with pytest.raises(ParityError, match="nothing was compared in another"):
        report.raise_for_failures()


def test_stages_account_for_everything_that_is_made():
    class Misspelt(Line):
        def stages(self, names):
            return [Stage("line", ("outt",), ("x",), ("w",))]

    with pytest.raises(ConfigError, match="no stage makes out; stages make outt"):
        compare(Misspelt(), Line(), CASE)
    assert "no stage makes out" in messages(Misspelt())[0]


def test_the_candidates_stages_count_where_the_reference_tells_none():
    class Named(Line):
        def stages(self, names):
            return [Stage("the line", ("out",), ("x",), ("w",))]

        def output(self, x):
            return 2 * super().output(x)

    report = compare(Line(), Named(), CASE, dtypes=["float64"])
    assert [result.stage for result in report.divergences] == ["the line"]


def test_patterns_take_brackets_as_they_are():
    class Cut(Line):
        def backward(self):
            return {"x": super().backward()["x"]}

        def load(self, case, dtype):
            self.case, self.dtype = case, dtype
            self.w = case.params["w[0]"].astype(dtype)

    case = replace(CASE, params={"w[0]": CASE.params["w"]})
    assert messages(Cut(), replace(case, untrained=("w[0]",)), Cut()) == []


def test_names_of_cases_differ():
    with pytest.raises(ConfigError, match="names of cases must differ, got more than one a line"):
        compare(Line(), Line(), [CASE, replace(CASE, optimizer=AdamW(0.1))])
