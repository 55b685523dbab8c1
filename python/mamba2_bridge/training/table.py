"""Reading a time series from a CSV file or a data frame, with every check that training rests on.

Rows are counted from 1, the header not among them, in every message.
"""

from __future__ import annotations

import datetime
import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from mamba2_bridge.exceptions import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Missing = Literal["error", "interpolate"]

# day and month, in whatever order, before a year
_NUMBERED_DATE = r"^\s*(\d{1,2})[/.-](\d{1,2})[/.-](?:\d{4}|\d{2})(?!\d)"
_MONTHS = 12

_NO_NUMBERS = (
    *(bool, np.bool_, complex, np.complexfloating),
    *(datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period),
)


@dataclass(frozen=True)
class Table:
    """Columns of numbers in the order of time.

    Attributes
    ----------
    source : str
        What messages call it.
    columns : tuple of str
        The target first, then the features.
    values : ndarray
        (rows, columns), float64, finite.
    filled : ndarray
        (rows, columns), bool: cells that were missing and are interpolated.
    time : pandas.Series or None
        (rows,) datetimes or numbers, strictly increasing; None where no time column was named.
    notes : tuple of str
        What a user should know: filled cells, uneven steps.
    """

    source: str
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    filled: NDArray[np.bool_]
    time: pd.Series[Any] | None
    notes: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    @property
    def has_dates(self) -> bool:
        """Whether the time column holds dates."""
        return self.time is not None and pd.api.types.is_datetime64_any_dtype(self.time)

    def labels(self) -> list[str]:
        """Return what to call each row in a result: its time, or its number."""
        return [_label(self.time, row) if self.time is not None else str(row + 1) for row in range(len(self))]

    def labels_after(self, count: int) -> list[str]:
        """Return what the next `count` rows would be called; empty where the steps are not all equal."""
        if self.time is None:
            return [str(len(self) + row + 1) for row in range(count)]
        steps = self.time.diff().iloc[1:]
        if len(steps) == 0 or (steps != steps.iloc[0]).any():
            return [""] * count
        following = pd.Series([self.time.iloc[-1] + (row + 1) * steps.iloc[0] for row in range(count)])
        return [_label(following, row) for row in range(count)]

    def digest(self) -> str:
        """Return a SHA-256 over columns, values and times: equal for equal series, wherever they lie."""
        digest = hashlib.sha256("\0".join(self.columns).encode())
        digest.update(np.ascontiguousarray(self.values, dtype="<f8").tobytes())
        digest.update("\0".join(self.labels()).encode())
        return digest.hexdigest()


def read_table(
    data: str | Path | pd.DataFrame,
    *,
    target: str,
    features: Sequence[str] = (),
    time: str | None = None,
    missing: Missing = "error",
) -> Table:
    """Read and check a time series.

    Parameters
    ----------
    data : path or pandas.DataFrame
        A CSV file with a header (UTF-8, commas; compressed files are recognised by their name), or a data
        frame.
    target : str
        The column to predict; it is always among the inputs too.
    features : sequence of str
        Further input columns.
    time : str, optional
        The column of dates or numbers by which rows must be ordered.
    missing : {"error", "interpolate"}
        What to do with missing cells: refuse them, or fill those between known ones linearly.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        If the file can't be opened.
    DataError
        If the content can't be used; the message names row and column.
    """
    if isinstance(data, pd.DataFrame):
        source, frame = "the data frame", data.reset_index(drop=True)
    else:
        source, frame = Path(data).name, _read_csv(Path(data))
    columns = (target, *features)
    _check_columns(source, frame, columns, time)
    if frame.empty:
        raise DataError(f"{source} has a header but no rows")
    times = None if time is None else _read_time(source, frame[time], time)
    values = np.stack([_read_numbers(source, frame[name], name) for name in columns], axis=1)
    filled = np.isnan(values)
    notes = [] if times is None else _uneven_steps(times)
    if filled.any():
        if missing == "error":
            raise DataError(_describe_missing(source, columns, filled, times))
        _interpolate(source, columns, values, times)
        counts = ", ".join(f"{n} in {name!r}" for name, n in zip(columns, filled.sum(0), strict=True) if n)
        notes.append(f"missing cells interpolated: {counts}; none of them is a target")
    return Table(source, columns, values, filled, times, tuple(notes))


def _read_csv(path: Path) -> pd.DataFrame:
    """Read every cell as a string, or as NaN where it is missing."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a CSV file")
    try:
        # the header is read as a row: pandas would rename repeated columns, and take a longer row for an
        # index
        frame = pd.read_csv(path, header=None, dtype=str, encoding="utf-8-sig", skipinitialspace=True)
    except FileNotFoundError:
        raise FileNotFoundError(f"no file {path}") from None
    except pd.errors.EmptyDataError:
        raise DataError(f"{path.name} is empty") from None
    except pd.errors.ParserError as error:
        raise DataError(f"{path.name} is not a table: {str(error).strip()}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not UTF-8 text: {error}") from error
    header = frame.iloc[0].fillna("").str.strip()
    rows: pd.DataFrame = frame.iloc[1:].reset_index(drop=True)
    rows.columns = pd.Index(header)
    return rows


def _check_columns(source: str, frame: pd.DataFrame, columns: Sequence[str], time: str | None) -> None:
    """Check that each column that is asked for is there, once, and asked for once."""
    wanted = [*columns, *([] if time is None else [time])]
    for kind, name in zip(["target", *["feature"] * (len(columns) - 1), "time"], wanted, strict=False):
        count = list(frame.columns).count(name)
        if count == 0:
            there = ", ".join(map(str, frame.columns))
            raise DataError(f"{source} has no column {name!r} (the {kind}); it has: {there}")
        if count > 1:
            raise DataError(f"{source} has {count} columns called {name!r}")
        if wanted.count(name) > 1:
            raise DataError(f"column {name!r} is asked for more than once (target, features and time)")


def _read_numbers(source: str, column: pd.Series[Any], name: str) -> NDArray[np.float64]:
    """Return a column as float64, NaN where a cell is missing."""
    _check_kind(source, column, name)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    wrong = np.isnan(numbers) & column.notna().to_numpy()
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"{source}, row {row + 1}, column {name!r}: {column.iloc[row]!r} is not a number{_more(wrong)}"
        )
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise DataError(f"{source}, row {row + 1}, column {name!r}: {numbers[row]} is not finite")
    return numbers


def _check_kind(source: str, column: pd.Series[Any], name: str) -> None:
    """Refuse what pandas would turn into numbers, though it is none: truth values, times, complex numbers."""
    kinds, dtype = pd.api.types, column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if kinds.is_string_dtype(dtype) and not kinds.is_object_dtype(dtype):
        return
    if kinds.is_object_dtype(dtype):
        wrong = column.notna().to_numpy() & np.array([isinstance(cell, _NO_NUMBERS) for cell in column], bool)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            cell = column.iloc[row]
            raise DataError(
                f"{source}, row {row + 1}, column {name!r}: {cell!r} ({type(cell).__name__}) is not a real"
                f" number{_more(wrong)}"
            )
    elif not kinds.is_numeric_dtype(dtype) or kinds.is_bool_dtype(dtype) or kinds.is_complex_dtype(dtype):
        raise DataError(f"{source}, column {name!r} holds {dtype}, not real numbers")


def _read_time(source: str, column: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Return the time column as numbers or dates, strictly increasing."""
    absent = column.isna().to_numpy()
    if absent.any():
        row = int(np.flatnonzero(absent)[0])
        raise DataError(f"{source}, row {row + 1}, column {name!r}: the time is missing{_more(absent)}")
    times = _parse_time(source, column, name)
    steps = times.diff().iloc[1:]
    zero = steps - steps
    for wrong, what in ((steps == zero, "the same time as"), (steps < zero, "earlier than")):
        if wrong.any():
            row = int(np.flatnonzero(wrong.to_numpy())[0]) + 1
            raise DataError(
                f"{source}, row {row + 1}, column {name!r}: {_label(times, row)} is {what} row {row}"
                f" ({_label(times, row - 1)}); times must increase from row to row"
            )
    return times


def _parse_time(source: str, column: pd.Series[Any], name: str) -> pd.Series[Any]:
    """Return a column without missing cells as finite numbers or as dates."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return column
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.notna().all() and np.isfinite(numbers.to_numpy(dtype=np.float64)).all():
        return numbers
    day_first = _day_first(source, column, name)
    for layout in ("ISO8601", None):
        with warnings.catch_warnings():
            # a format that can't be told is tried cell by cell, with a warning
            warnings.simplefilter("ignore", UserWarning)
            try:
                dates = pd.to_datetime(column, errors="coerce", format=layout, dayfirst=day_first)
            except ValueError:  # time zones that differ
                _check_zones(source, column, name)
                dates = pd.to_datetime(column, errors="coerce", format=layout, dayfirst=day_first, utc=True)
        if dates.notna().all():
            return dates
    first = dates if dates.notna().any() else numbers
    row = int(np.flatnonzero(first.isna().to_numpy())[0])
    raise DataError(
        f"{source}, row {row + 1}, column {name!r}: {column.iloc[row]!r} is neither a date nor a number"
        " like the rest of the column"
    )


def _day_first(source: str, column: pd.Series[Any], name: str) -> bool:
    """Return whether dates such as 31/01/2020 have the day first; refuse a column that does not tell."""
    cells = column.astype(str)
    numbers = cells.str.extract(_NUMBERED_DATE).dropna().astype(int)
    if numbers.empty:
        return False
    first, second = (int(numbers[group].max()) for group in (0, 1))
    if first <= _MONTHS and second <= _MONTHS:
        row = int(numbers.index[0])
        raise DataError(
            f"{source}, row {row + 1}, column {name!r}: {cells.iloc[row]!r} may have the day or the month"
            " first, and no row tells which; write dates as YYYY-MM-DD (ISO 8601)"
        )
    return second <= _MONTHS


def _check_zones(source: str, column: pd.Series[Any], name: str) -> None:
    """Refuse times of which some have a time zone and others don't: their order is not known."""
    zoned = column.map(_has_zone)
    known = zoned.dropna().astype(bool)
    if known.nunique() > 1:
        row = int(known.index[(known != known.iloc[0]).to_numpy()][0])
        has, hasnt = ("no time zone", "have one") if known.iloc[0] else ("a time zone", "have none")
        raise DataError(
            f"{source}, row {row + 1}, column {name!r}: {str(column.iloc[row])!r} has {has}, the rows before"
            f" it {hasnt}; give all times a zone, or none"
        )


def _has_zone(cell: Any) -> bool | None:
    """Return whether a cell has a time zone; None if it is no time."""
    try:
        return pd.Timestamp(cell).tzinfo is not None
    except (ValueError, TypeError):
        return None


def _interpolate(
    source: str, columns: Sequence[str], values: NDArray[np.float64], times: pd.Series[Any] | None
) -> None:
    """Fill missing cells of `values` in place, along the time where there is one."""
    if times is None:
        position = np.arange(len(values), dtype=np.float64)
    else:
        since = times - times.iloc[0]
        position = since.dt.total_seconds().to_numpy() if hasattr(since, "dt") else since.to_numpy(np.float64)
    for column, name in enumerate(columns):
        known = np.flatnonzero(~np.isnan(values[:, column]))
        if not len(known):
            raise DataError(f"{source}, column {name!r} has no value in any row")
        for row, neighbour in ((0, "before"), (len(values) - 1, "after")):
            if np.isnan(values[row, column]):
                raise DataError(
                    f"{source}, row {row + 1}, column {name!r}: missing, and no value {neighbour} it"
                    " to interpolate from; leave out such rows"
                )
        values[:, column] = np.interp(position, position[known], values[known, column])


def _uneven_steps(times: pd.Series[Any]) -> list[str]:
    """Return a note if some rows are further apart than the usual step: rows may be absent altogether."""
    steps = times.diff().iloc[1:]
    if len(steps) < 2:
        return []
    usual = steps.median()
    # calendar steps such as months and years differ by a few days
    longer = (steps > 1.5 * usual).to_numpy()
    if not longer.any():
        return []
    row = int(np.flatnonzero(longer)[0]) + 1
    return [
        f"{longer.sum()} of {len(steps)} time steps are longer than the usual {usual},"
        f" first to row {row + 1} ({_label(times, row)}); each counts as one step"
    ]


def _describe_missing(
    source: str, columns: Sequence[str], filled: NDArray[np.bool_], times: pd.Series[Any] | None
) -> str:
    """Return the message for missing cells that nobody asked to fill."""
    parts = []
    for column, name in enumerate(columns):
        rows = np.flatnonzero(filled[:, column])
        if len(rows):
            when = "" if times is None else f" ({_label(times, int(rows[0]))})"
            count = f"{len(rows)} of {len(filled)} values"
            parts.append(f"column {name!r} misses {count}, first in row {rows[0] + 1}{when}")
    return (
        f"{source}: {'; '.join(parts)}. Fill them, or ask for missing='interpolate' (--missing interpolate)"
    )


def _more(wrong: NDArray[np.bool_]) -> str:
    """Return how many further rows have the same fault."""
    further = int(wrong.sum()) - 1
    return f" (and {further} more such rows)" if further else ""


def _label(times: pd.Series[Any], row: int) -> str:
    """Return a time as a user would write it: a date without a time of day where there is none."""
    value = times.iloc[row]
    if isinstance(value, pd.Timestamp):
        return value.strftime("%Y-%m-%d") if value == value.normalize() else value.isoformat()
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)
