"""The time of year as inputs: a date's place in its year, as sines and cosines.

A window shorter than a few years can't show the course of the year, but the date tells it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mamba2_bridge.exceptions import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mamba2_bridge.training.table import Table

AUTOMATIC_HARMONICS = 4
_YEAR = pd.Timedelta(days=365.2425)


def automatic_harmonics(table: Table) -> int:
    """Return how many harmonics to use where the user does not say.

    Four for dates that cover three years or more in steps of at most a month (then each harmonic has
    several steps), else none.
    """
    if not table.has_dates or table.time is None or len(table) < 3:
        return 0
    span = table.time.iloc[-1] - table.time.iloc[0]
    step = table.time.diff().median()
    return AUTOMATIC_HARMONICS if span >= 3 * _YEAR and step <= pd.Timedelta(days=31) else 0


def calendar_inputs(table: Table, harmonics: int) -> NDArray[np.float64]:
    """Return the waves of the table's dates (rows, 2 * harmonics); without harmonics no dates are needed.

    Raises
    ------
    ConfigError
        If there are harmonics but the table has no time column.
    DataError
        If the time column holds no dates.
    """
    if harmonics == 0:
        return np.empty((len(table), 0))
    if table.time is None:
        raise ConfigError(f"calendar={harmonics} needs a time column of dates; none is named")
    if not table.has_dates:
        raise DataError(
            f"{table.source}: calendar={harmonics} needs dates, but the time column holds numbers"
        )
    return waves_of_year(table.time, harmonics)


def waves_of_year(dates: pd.Series[pd.Timestamp], harmonics: int) -> NDArray[np.float64]:
    """Return (rows, 2 * harmonics): sin, cos, sin, cos … of 2π·k·:func:`part_of_year`."""
    phase = 2.0 * np.pi * part_of_year(dates)
    waves = [wave(k * phase) for k in range(1, harmonics + 1) for wave in (np.sin, np.cos)]
    return np.stack(waves, axis=1)


def part_of_year(dates: pd.Series[pd.Timestamp]) -> NDArray[np.float64]:
    """Return (rows,): 0 at the first moment of a year, towards 1 at its last; leap years count as years."""
    days = np.where(dates.dt.is_leap_year.to_numpy(), 366.0, 365.0)
    seconds = (dates - dates.dt.normalize()).dt.total_seconds().to_numpy()
    result: NDArray[np.float64] = (dates.dt.day_of_year.to_numpy() - 1 + seconds / 86400.0) / days
    return result
