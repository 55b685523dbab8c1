"""Ctrl-C between steps: a step in progress is finished, so that what is saved is a state of the training."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class Interrupt:
    """While entered, the first Ctrl-C is kept until :meth:`check`; a second one interrupts at once.

    Off the main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self._seen = False
        self._previous: Any = None
        self._installed = False

    def __enter__(self) -> Interrupt:
        """Take over SIGINT, unless someone ignores it on purpose."""
        on_main_thread = threading.current_thread() is threading.main_thread()
        if on_main_thread and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._previous = signal.signal(signal.SIGINT, self._remember)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give SIGINT back."""
        if self._installed:
            signal.signal(signal.SIGINT, self._previous)
            self._installed = False

    def check(self) -> None:
        """Raise the Ctrl-C that was kept.

        Raises
        ------
        KeyboardInterrupt
        """
        if self._seen:
            self._seen = False
            raise KeyboardInterrupt

    def _remember(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._seen:
            raise KeyboardInterrupt
        self._seen = True
