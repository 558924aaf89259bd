"""Where the tests of a guest say what passed: test/nvme/summarize.py reads it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

# What takes longer is printed, so that it can be seen where the time goes.
SECONDS_TO_TELL = 5


class Results:
    def __init__(self, path: str) -> None:
        self._path = path

    def check(self, name: str, body: Callable[[], None]) -> None:
        line, start = f"PASS {name}", time.monotonic()
        try:
            body()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1].line
            line = f"FAIL {name}: {type(error).__name__}: {str(error) or place}".replace("\n", " ")
            print(line, flush=True)
        seconds = time.monotonic() - start
        if seconds >= SECONDS_TO_TELL:
            print(f"guest: {seconds:.0f} s: {name}", flush=True)
        self._tell(line)

    def skip(self, name: str, reason: str) -> None:
        self._tell(f"SKIP {name}: {reason}".replace("\n", " "))

    def _tell(self, line: str) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
