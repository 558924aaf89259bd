"""The tests' side of worker.py."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).with_name("worker.py")
#: Nothing may take longer. Waiting for the requests of a killed process takes up to a minute.
ANSWER_SECONDS = 90
#: pread64, preadv, preadv2; pwrite64, pwritev, pwritev2.
_SYSTEM_CALLS = {
    "x86_64": {"read": ("17", "295", "327"), "write": ("18", "296", "328")},
    "aarch64": {"read": ("67", "69", "286"), "write": ("68", "70", "287")},
}
_DRAIN_SECONDS = 0.02


@dataclass(frozen=True)
class Answer:
    value: object = None
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.error


class Crashed(AssertionError):
    """The process ended, or did not answer in time."""


class Worker:
    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._buffer = b""
        self.acknowledged: list[int] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        self.receive()

    def send(self, action: str, **arguments: object) -> None:
        line = json.dumps({"action": action, **arguments}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise Crashed(self._last_words()) from error

    def receive(self, seconds: float = ANSWER_SECONDS) -> Answer:
        while True:
            said = self._line(seconds)
            if "acknowledged" in said:
                self.acknowledged.append(said["acknowledged"])
            else:
                return Answer(said.get("value"), said.get("error", ""))

    def ask(self, action: str, **arguments: object) -> Answer:
        self.send(action, **arguments)
        return self.receive()

    def must(self, action: str, **arguments: object):
        answer = self.ask(action, **arguments)
        assert answer.ok, f"{action} {arguments}: {answer.error}"
        return answer.value

    def run(self, *statements: str):
        return self.must("run", statements=list(statements))

    def answered(self, seconds: float = 0) -> bool:
        """Whether there is an answer, or an end, to be received."""
        return b"\n" in self._buffer or bool(select.select([self._process.stdout], [], [], seconds)[0])

    def waits_in(self, operation: str) -> bool:
        """Whether one of its threads is in a system call that reads or writes at an offset."""
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with suppress(OSError):
                number = (task / "syscall").read_text().split()[0]
                if number in _SYSTEM_CALLS[os.uname().machine][operation]:
                    return True
        return False

    def has_open(self, path: str) -> bool:
        wanted = os.stat(path)
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):
                found = entry.stat()
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) or (
                    wanted.st_rdev and found.st_rdev == wanted.st_rdev
                ):
                    return True
        return False

    def kill(self) -> None:
        """Returns at once: with requests in flight, the end of the process may take long."""
        self._process.kill()

    def drain_after_kill(self) -> None:
        """Takes what it had acknowledged. What comes later, if anything, is not asked for."""
        with suppress(Crashed):
            while self.answered(_DRAIN_SECONDS):
                said = self._line(0)
                if "acknowledged" in said:
                    self.acknowledged.append(said["acknowledged"])

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(ANSWER_SECONDS)
        self._process.stdout.close()
        self._errors.close()

    def _line(self, seconds: float) -> dict:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = max(0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise Crashed(f"no answer within {seconds} seconds\n{self._last_words()}")
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                raise Crashed(self._last_words())
            self._buffer += piece
        line, self._buffer = self._buffer.split(b"\n", 1)
        return json.loads(line)

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")[-4000:]
        return f"process {self.pid} ended with {self._process.poll()}: {text}"


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    made = [Worker() for _ in range(count)]
    try:
        for worker in made:
            worker.wait_until_ready()
        yield made
    finally:
        for worker in made:
            worker.close()
