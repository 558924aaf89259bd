"""Where the `rawduck` command starts."""

from __future__ import annotations

import importlib
import os
import signal
import sys

EXIT_FAILED = 2  # 1 says of `check` that it found damage
EXIT_INTERRUPTED = 130


def main() -> None:
    """Runs the command line. An interrupt while its modules are loaded, which takes most of a second, ends it
    at once: compiled ones would make other errors of it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    try:
        command_line = importlib.import_module("rawduck.cli")
    except Exception:
        importlib.import_module("traceback").print_exc()
        sys.exit(EXIT_FAILED)
    signal.signal(signal.SIGINT, handler)
    command_line.main()


def _end(*_: object) -> None:
    os.write(2, b"rawduck: interrupted\n")
    os._exit(EXIT_INTERRUPTED)
