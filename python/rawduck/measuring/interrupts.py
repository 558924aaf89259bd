"""Ctrl-C that cannot get lost while measurements run."""

from __future__ import annotations

import signal
from typing import Any


class Interrupts:
    """A context manager: remembers that somebody interrupted, for the main thread to check between runs.

    Python raises KeyboardInterrupt wherever the main thread happens to be. In a destructor, a callback of a
    library or a query, that drops it or makes another error of it.
    """

    def __enter__(self) -> Interrupts:
        self._seen = False
        # Who ignores interrupts, as a shell's background job does, goes on doing so.
        self._installed = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._installed:
            signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _remember(self, *_: Any) -> None:
        self._seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raises KeyboardInterrupt if there was one."""
        if self._seen:
            raise KeyboardInterrupt
