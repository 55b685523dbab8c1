"""Expected errors become one line and an exit code; anything else keeps its traceback."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mamba2_bridge._extras import EXTRA_OF
from mamba2_bridge.exceptions import InternalError, Mamba2BridgeError

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors a user can do something about into a message on stderr.

    Exit code 130 for Ctrl-C, 2 for all else: a wrong setting, a missing extra, bad data, a file that is not
    there, a model that does not fit into memory. 1 is for commands that found a difference or a fault.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        click.echo(f"\n{str(error) or 'stopped'}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except InternalError:
        raise
    except (Mamba2BridgeError, OSError) as error:
        _fail(error)
    except MemoryError as error:
        _fail(error if str(error) else MemoryError("not enough memory"))
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        _fail(error)


def _fail(error: Exception) -> None:
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    click.echo(f"Error: {' '.join(str(text).split())}", err=True)
    sys.exit(EXIT_USAGE)
