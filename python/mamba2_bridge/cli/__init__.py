"""The command ``mamba2-bridge``: a group whose subcommands are imported when they are run."""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from io import TextIOWrapper

import click

from mamba2_bridge._extras import EXTRA_OF, missing
from mamba2_bridge.cli.errors import EXIT_USAGE

# name: (module, attribute, line in the help): the help must not import pandas, matplotlib or torch
_COMMANDS = {
    "train": ("mamba2_bridge.cli.train", "train", "Train a forecaster on a time series in a CSV file."),
    "predict": (
        "mamba2_bridge.cli.predict",
        "predict",
        "Predict with a trained forecaster; writes a CSV file.",
    ),
    "parity": ("mamba2_bridge.cli.parity", "parity", "Compare the native model with its PyTorch twin."),
    "record": ("mamba2_bridge.cli.record", "record", "Write all tensors of a model's run to a folder."),
    "compare": ("mamba2_bridge.cli.compare", "compare", "Compare such a folder with another, or a model."),
    "report": ("mamba2_bridge.cli.report", "report", "Print a comparison again, or make a page of it."),
    "audit": ("mamba2_bridge.cli.audit", "audit", "Look for faults in a model that raise no error."),
    "candle-ops": (
        "mamba2_bridge.cli.candle_ops",
        "candle_ops",
        "Tell which of Candle's operations are right.",
    ),
    "doctor": (
        "mamba2_bridge.cli.doctor",
        "doctor",
        "Tell what this installation is made of, and whether it is right.",
    ),
}


class _MissingExtraError(click.ClickException):
    exit_code = EXIT_USAGE  # 1 is a mismatch of `parity`


class _LazyGroup(click.Group):
    """Knows its commands by name, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names, in the order in which they are used."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command.

        Raises
        ------
        click.ClickException
            If it needs an optional dependency that is not installed.
        """
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name not in EXTRA_OF:
                raise
            raise _MissingExtraError(missing(error.name, f"mamba2-bridge {cmd_name}")) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands' lines without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in _COMMANDS.items()])


def _version() -> str:
    try:
        return metadata.version("mamba2-bridge")
    except metadata.PackageNotFoundError:
        return "not installed"


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="mamba2-bridge")
def main() -> None:
    """Mamba-2 in Rust on Candle: train, predict, and compare it with PyTorch."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to fail.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
