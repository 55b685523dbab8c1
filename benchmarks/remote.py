"""An object in a process of its own, whose methods are called over a pipe.

The processes come from a fork server that has imported PyTorch once and started no thread: a new process is
there at once, and each has threads, allocator and peak memory of its own.
"""

from __future__ import annotations

import os
import re
import signal
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

_PRELOADED = [
    "benchmarks.session",
    "benchmarks.probe",
    "benchmarks.contenders.hf",
    "torch._dynamo",
    "torch._inductor.compile_fx",
]
"""Imported once, for all processes. None of these starts a thread."""

_CONTEXT = get_context("forkserver")

_FOLDERS = re.compile(r"(?<!\S)/(?:[^\s/]+/)*")
"""Folders before a file's name: they are the machine's business."""


class RemoteError(Exception):
    """A call failed over there; the message is one line that says how."""


def prepare_environment(threads: int) -> None:
    """Set what libraries read when they are loaded. Before the first `Remote`, once.

    How long OpenMP's threads spin is left as it is: they are asleep after some milliseconds, before the next
    contender's turn, and would be slow without.
    """
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's, which nobody here computes with
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        os.environ.pop(name, None)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    _CONTEXT.set_forkserver_preload(_PRELOADED)


class Remote:
    """A process that makes an object and calls its methods when told to.

    Parameters
    ----------
    make
        Makes the object, over there.
    *arguments
        What it is made from.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, make, arguments), daemon=False)
        self._process.start()
        theirs.close()

    def send(self, method: str, *arguments: Any) -> None:
        """Start a call."""
        try:
            self._pipe.send((method, arguments))
        except OSError:
            raise RemoteError(self._death()) from None

    def receive(self) -> Any:
        """Wait for what the call gives.

        Raises
        ------
        RemoteError
            It failed, or the process ended.
        """
        try:
            succeeded, value = self._pipe.recv()
        except (EOFError, OSError):
            raise RemoteError(self._death()) from None
        if not succeeded:
            raise RemoteError(value)
        return value

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and wait."""
        self.send(method, *arguments)
        return self.receive()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _death(self) -> str:
        self._process.join(timeout=5)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Make the object at the first call, then call its methods until the pipe is closed."""
    made: Any = None
    while True:
        try:
            method, given = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            # compilers and pools that libraries have left behind would hold up an orderly exit
            os._exit(0)
        try:
            made = make(*arguments) if made is None else made
            answer = True, getattr(made, method)(*given)
        except KeyboardInterrupt:
            os._exit(0)
        except Exception as error:  # whatever a contender raises is a line in the results
            answer = False, _one_line(error)
        pipe.send(answer)


def _one_line(error: Exception) -> str:
    from benchmarks.contenders import UnavailableError  # noqa: PLC0415

    text = _FOLDERS.sub("", " ".join(str(error).split()))
    text = text if len(text) <= 200 else f"{text[:200]}…"
    return text if isinstance(error, UnavailableError) else f"{type(error).__name__}: {text}"
