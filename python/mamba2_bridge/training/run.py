"""The folder of a run, and what is written into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mamba2_bridge.exceptions import CheckpointError, ConfigError, Mamba2BridgeError
from mamba2_bridge.files import read_json, write_json
from mamba2_bridge.training.config import TrainConfig
from mamba2_bridge.training.scaling import Scaling, scaling_from_dict

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1


@dataclass(frozen=True)
class RunFolder:
    """Where the parts of a run lie.

    ============================ =============================================================
    ``config.json``              what was trained on what (:class:`RunInfo`)
    ``checkpoints/best``         the weights with the least validation loss: a pretrained folder
    ``checkpoints/last``         everything needed to go on
    ``metrics.json``             losses, gradient norms, update ratios, test errors
    ``test.csv``                 truth and predictions on the test part
    ``report.png``               the same as curves
    ============================ =============================================================
    """

    path: Path

    @property
    def config(self) -> Path:
        """``config.json``."""
        return self.path / "config.json"

    @property
    def best(self) -> Path:
        """``checkpoints/best``."""
        return self.path / "checkpoints" / "best"

    @property
    def last(self) -> Path:
        """``checkpoints/last``."""
        return self.path / "checkpoints" / "last"

    @property
    def metrics(self) -> Path:
        """``metrics.json``."""
        return self.path / "metrics.json"

    @property
    def test_table(self) -> Path:
        """``test.csv``."""
        return self.path / "test.csv"

    @property
    def report(self) -> Path:
        """``report.png``."""
        return self.path / "report.png"

    def check_best(self) -> None:
        """Check that the files of ``checkpoints/best`` are there.

        Raises
        ------
        CheckpointError
            Naming the one that is not.
        """
        for path in (self.best / "config.json", self.best / "model.safetensors"):
            if not path.is_file():
                raise CheckpointError(
                    f"{path} is missing: put it back from a copy, or delete all in {self.best.parent} and go"
                    f" on with: mamba2-bridge train --resume {self.path}"
                )

    def create(self) -> None:
        """Make the folder.

        Raises
        ------
        ConfigError
            If something lies there already.
        """
        if self.config.exists():
            raise ConfigError(f"{self.path} holds a run already: resume it, or give another folder")
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ConfigError(f"{self.path} is there already and is not an empty folder")
        self.best.parent.mkdir(parents=True)


@dataclass(frozen=True)
class RunInfo:
    """What a run was started with, and what was fitted before its first step.

    Attributes
    ----------
    config : TrainConfig
    scaling : Scaling
    data : str or None
        The CSV file; None for a data frame.
    digest : str
        :meth:`~mamba2_bridge.training.table.Table.digest` of the series.
    """

    config: TrainConfig
    scaling: Scaling
    data: str | None
    digest: str

    def write(self, folder: RunFolder) -> None:
        """Write ``config.json``."""
        write_json(
            folder.config,
            {
                "format": FORMAT,
                "data": self.data,
                "digest": self.digest,
                "config": self.config.to_dict(),
                "scaling": self.scaling.to_dict(),
            },
        )

    @classmethod
    def read(cls, folder: RunFolder) -> RunInfo:
        """Read ``config.json``.

        Raises
        ------
        FileNotFoundError
            If there is no run.
        CheckpointError
            If the file is not one that :meth:`write` wrote.
        """
        if not folder.config.exists():
            raise FileNotFoundError(f"{folder.path} holds no run: there is no {folder.config}")
        try:
            return cls._from_dict(read_json(folder.config))
        except (Mamba2BridgeError, KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"no {error}" if type(error) is KeyError else str(error)
            raise CheckpointError(f"{folder.config} is damaged: {what}") from error

    @classmethod
    def _from_dict(cls, values: dict[str, Any]) -> RunInfo:
        if values.get("format") != FORMAT:
            raise CheckpointError(f"format is {values.get('format')!r}, expected {FORMAT}")
        for name, kinds in (("config", dict), ("scaling", dict), ("data", str | None), ("digest", str)):
            if not isinstance(values[name], kinds):
                raise CheckpointError(f"{name} is {values[name]!r}")
        config = TrainConfig.from_dict(values["config"])
        if not isinstance(config.device, str):
            raise CheckpointError(f"device is {config.device!r}")
        scaling = scaling_from_dict(values["scaling"], columns=1 + len(config.features))
        return cls(config, scaling, values["data"], values["digest"])
