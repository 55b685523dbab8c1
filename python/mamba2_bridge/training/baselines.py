"""What a forecast without a neural network reaches: the errors to compare with.

Each baseline sees what the model sees: the same training rows to fit on, the same window to predict from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mamba2_bridge.training.windows import Part, Rows, Split

Array = NDArray[np.float64]
Form = Literal["levels", "changes"]


@dataclass(frozen=True)
class Scores:
    """Errors in the target's own units: root mean square, and mean absolute."""

    rmse: float
    mae: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def scores(predictions: Array, truth: Array) -> Scores:
    """Return the errors of predictions (n,) against the truth (n,)."""
    error = predictions - truth
    return Scores(rmse=float(np.sqrt(np.mean(error**2))), mae=float(np.mean(np.abs(error))))


def persistence(target: Array, ends: Rows) -> Array:
    """Predict the last known value: (n,)."""
    return target[ends]


def seasonal_naive(target: Array, ends: Rows, horizon: int, period: int) -> Array:
    """Predict the latest known value a whole number of periods before the predicted row: (n,).

    Raises
    ------
    ValueError
        If that row lies before the first one.
    """
    back = period * -(-horizon // period)
    rows = ends + horizon - back
    if (rows < 0).any():
        raise ValueError(
            f"{back} rows back from row {int(ends.min()) + horizon + 1} lies before the first row"
        )
    return target[rows]


@dataclass(frozen=True)
class Autoregression:
    """A linear function of the last `order` rows, fitted by least squares.

    ``"levels"`` predicts the value from values; ``"changes"`` predicts the change from the last value,
    from differences to the last value: a trend is no obstacle to it.
    """

    order: int
    form: Form
    weights: Array
    columns: int

    def predict(self, values: Array, known: Array, ends: Rows) -> Array:
        """Return (n,) predictions at windows that end at `ends`; arguments as in
        :func:`fit_autoregression`.
        """
        inputs = _regressors(values[:, : self.columns], known, ends, self.order, self.form)
        offset = values[ends, 0] if self.form == "changes" else 0.0
        prediction: Array = inputs @ self.weights + offset
        return prediction


def fit_autoregression(
    values: Array, known: Array, split: Split, *, order: int, form: Form, columns: int
) -> Autoregression:
    """Fit one autoregression on the training split.

    Parameters
    ----------
    values : ndarray
        (rows, columns), the target first.
    known : ndarray
        (rows, k): inputs used as they are at the window's last row (the calendar); k may be 0.
    split : Split
        The training part is fitted on.
    order : int
        Number of rows it sees, at most the window.
    form : {"levels", "changes"}
    columns : int
        How many of the columns it sees; 1 is the target alone.
    """
    ends, rows = split.ends["train"], split.targets("train")
    inputs = _regressors(values[:, :columns], known, ends, order, form)
    targets = values[rows, 0] - (values[ends, 0] if form == "changes" else 0.0)
    weights = np.linalg.lstsq(inputs, targets, rcond=None)[0]
    return Autoregression(order, form, weights, columns)


def best_autoregression(
    values: Array, known: Array, split: Split, *, columns: int, period: int | None = None
) -> Autoregression:
    """Fit every sensible order in both forms, and return the one that is best on the validation part."""
    ends = split.ends["validation"]
    truth = values[split.targets("validation"), 0]
    candidates = [
        fit_autoregression(values, known, split, order=order, form=form, columns=columns)
        for order in _orders(split, columns, known.shape[1], period)
        for form in ("levels", "changes")
    ]
    return min(candidates, key=lambda fit: scores(fit.predict(values, known, ends), truth).rmse)


def baseline_scores(values: Array, calendar: Array, split: Split, *, period: int | None) -> dict[str, Scores]:
    """Return the test errors of every baseline that applies, by name.

    There are two autoregressions where the model has inputs besides the target: one on the target's own
    past, and one on all inputs.
    """
    part: Part = "test"
    ends, truth = split.ends[part], values[split.targets(part), 0]
    result = {"persistence": scores(persistence(values[:, 0], ends), truth)}
    if period is not None:
        forecast = seasonal_naive(values[:, 0], ends, split.horizon, period)
        result[f"seasonal naive ({period})"] = scores(forecast, truth)
    nothing = calendar[:, :0]
    own = best_autoregression(values, nothing, split, columns=1, period=period)
    result[f"autoregression ({own.order})"] = scores(own.predict(values, nothing, ends), truth)
    if values.shape[1] > 1 or calendar.shape[1]:
        full = best_autoregression(values, calendar, split, columns=values.shape[1], period=period)
        result[f"autoregression, all inputs ({full.order})"] = scores(
            full.predict(values, calendar, ends), truth
        )
    return result


def _regressors(values: Array, known: Array, ends: Rows, order: int, form: Form) -> Array:
    """Return (n, order * columns + k + 1): the last rows, the known inputs, and a one."""
    lags = values[ends[:, None] + np.arange(1 - order, 1)]  # (n, order, columns)
    if form == "changes":
        lags = lags - lags[:, -1:, :]
    return np.concatenate([lags.reshape(len(ends), -1), known[ends], np.ones((len(ends), 1))], axis=1)


def _orders(split: Split, columns: int, known: int, period: int | None) -> Iterable[int]:
    """Return orders to try: powers of two, the period and a little more, the whole window.

    Those with more weights than half the training examples are left out.
    """
    window = split.window
    orders = {2**k for k in range(window.bit_length())} | {window}
    if period is not None:
        orders |= {period, period + 1, period + 2}
    most = max(1, (len(split.ends["train"]) // 2 - known - 1) // columns)
    return sorted(order for order in orders if order <= min(window, most)) or [1]
