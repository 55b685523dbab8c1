"""Two public-domain time series that come with the package; ``SOURCES.md`` has source and licence.

>>> from mamba2_bridge import datasets
>>> datasets.names()
('co2', 'sunspots')
>>> datasets.co2().shape
(2284, 2)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mamba2_bridge._extras import require

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["co2", "names", "path", "sunspots"]

_FOLDER = Path(__file__).parent
_NAMES = ("co2", "sunspots")


def names() -> tuple[str, ...]:
    """Return the names that :func:`path` knows."""
    return _NAMES


def path(name: str) -> Path:
    """Return where the CSV file of a series lies.

    Parameters
    ----------
    name : str
        ``"co2"`` or ``"sunspots"``.

    Raises
    ------
    ValueError
        If there is no such series.
    """
    if name not in _NAMES:
        raise ValueError(f"no series {name!r}; there are {', '.join(_NAMES)}")
    return _FOLDER / f"{name}.csv"


def co2() -> pd.DataFrame:
    """Weekly atmospheric CO2 at Mauna Loa, March 1958 to December 2001.

    Returns
    -------
    pandas.DataFrame
        2284 rows; ``date`` (datetime64, Saturdays), ``co2`` (ppmv, float64, NaN in the 59 weeks without a
        value).
    """
    require("pandas", "mamba2_bridge.datasets.co2")
    import pandas as pd  # noqa: PLC0415 (optional)

    return pd.read_csv(path("co2"), parse_dates=["date"])


def sunspots() -> pd.DataFrame:
    """Yearly sunspot numbers, 1700 to 2008.

    Returns
    -------
    pandas.DataFrame
        309 rows; ``year`` (int64), ``sunspots`` (float64), none missing.
    """
    require("pandas", "mamba2_bridge.datasets.sunspots")
    import pandas as pd  # noqa: PLC0415 (optional)

    return pd.read_csv(path("sunspots"), dtype={"sunspots": "float64"})
