"""Where the tests of a guest say what passed: test/nvme/summarize.py reads it."""

from __future__ import annotations

import traceback
from collections.abc import Callable


class Results:
    def __init__(self, path: str) -> None:
        self._path = path

    def check(self, name: str, body: Callable[[], None]) -> None:
        line = f"PASS {name}"
        try:
            body()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1].line
            line = f"FAIL {name}: {type(error).__name__}: {str(error) or place}".replace("\n", " ")
            print(line, flush=True)
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
