"""Expected errors become one line and an exit code; anything else keeps its traceback."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mamba2_bridge._extras import EXTRA_OF
from mamba2_bridge.exceptions import ConfigError, InternalError, Mamba2BridgeError

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


@contextmanager
def one_line_errors(failure: int = EXIT_FAILURE) -> Iterator[None]:
    """Turn errors a user can do something about into a message on stderr.

    Exit code 2 for a wrong setting or a missing extra, 130 for Ctrl-C, ``failure`` for all else: bad data, a
    file that is not there, a model that does not fit into memory.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        click.echo(f"\n{str(error) or 'stopped'}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except InternalError:
        raise
    except ConfigError as error:
        _fail(error, EXIT_USAGE)
    except (Mamba2BridgeError, OSError) as error:
        _fail(error, failure)
    except MemoryError as error:
        _fail(error if str(error) else MemoryError("not enough memory"), failure)
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        _fail(error, EXIT_USAGE)


def _fail(error: Exception, code: int) -> None:
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    click.echo(f"Error: {' '.join(str(text).split())}", err=True)
    sys.exit(code)
