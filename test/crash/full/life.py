"""One process that works on a volume, from its start to its end or its kill."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
#: So long for one request; what takes longer hangs.
SECONDS = 120
#: What is said where space is missing, by rawduck and by DuckDB, which goes on from it.
REFUSALS = ("volume is full", "the copy needs")


class Broken(Exception):
    """What must not happen did."""


@dataclass
class Answer:
    """What became of a lane. Neither done nor an error: the process was killed before it said so."""

    done: bool = False
    rows: list = field(default_factory=list)
    error: str = ""

    @property
    def refused(self) -> bool:
        return any(text in self.error for text in REFUSALS)

    @property
    def fatal(self) -> bool:
        """The database is given up, and whether the statement took effect is not known."""
        return "FATAL" in self.error or "Fatal" in self.error or "invalidated" in self.error


class Life:
    """A worker process."""

    def __init__(self, config: dict[str, str], before: list[str]) -> None:
        self._errors: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._readers = [
            threading.Thread(target=self._read_lines, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.tell(before)

    def _read_lines(self) -> None:
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _read_errors(self) -> None:
        self._errors.extend(self._process.stderr)

    def ask(self, *lanes: list[str]) -> list[Answer]:
        """Carries out the lanes at the same time, and waits until all have ended."""
        self._send(lanes)
        return self._collect(len(lanes), killed=False)

    def try_one(self, *statements: str) -> Answer:
        return self.ask(list(statements))[0]

    def tell(self, statements: list[str]) -> list:
        """What must succeed. Returns the rows of the last statement."""
        answer = self.try_one(*statements)
        if answer.error:
            raise Broken(f"{statements}: {answer.error}")
        return answer.rows

    def ask_and_kill(self, seconds: float, *lanes: list[str]) -> list[Answer]:
        """The process is killed after so many seconds; what it has said by then counts."""
        self._send(lanes)
        time.sleep(seconds)
        self.kill()
        return self._collect(len(lanes), killed=True)

    def _send(self, lanes: tuple[list[str], ...]) -> None:
        try:
            self._process.stdin.write(json.dumps(lanes) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Broken(f"the process ended: {self._end()}") from None

    def _collect(self, count: int, killed: bool) -> list[Answer]:
        answers = [Answer() for _ in range(count)]
        while not all(answer.done or answer.error for answer in answers):
            try:
                line = self._lines.get(timeout=SECONDS)
            except queue.Empty:
                self.kill()
                raise Broken(f"nothing happened for {SECONDS} s") from None
            if not line.endswith("\n"):  # the end, or a line that was cut off by it
                if killed:
                    break
                raise Broken(f"the process ended: {self._end()}")
            said = json.loads(line)
            error = said.get("error", "")
            answers[said["lane"]] = Answer(not error, said["rows"], error)
        return answers

    def _end(self) -> str:
        code = self._process.wait(timeout=SECONDS)
        self._readers[1].join(timeout=SECONDS)
        return f"status {code}, {''.join(self._errors)[-2000:]}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """It ends by itself, closing its databases."""
        if self._process.poll() is None:
            self._process.stdin.close()
        try:
            ended = self._end()
        except subprocess.TimeoutExpired:
            self.kill()
            raise Broken(f"a process did not end within {SECONDS} s") from None
        if self._process.returncode not in (0, -9):
            raise Broken(f"a process did not end as it should: {ended}")
