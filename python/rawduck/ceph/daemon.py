"""A process that outlives its parent, identified by a pid file and by its command line."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from rawduck.errors import RawduckError

_STOP_SECONDS = 20
_KILL_SECONDS = 5


class Daemon:
    """`mark`: an argument of the process, which distinguishes it from another one with a reused pid."""

    def __init__(self, name: str, pid_file: Path, mark: str) -> None:
        self.name = name
        self._pid_file = pid_file
        self._mark = os.fsencode(mark)

    @property
    def pid(self) -> int | None:
        """The process id, or None when it does not run."""
        try:
            number = int(self._pid_file.read_text())
            arguments = Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return None
        return number if self._mark in arguments else None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def failed(self) -> bool:
        """Whether it was started, not stopped with `stop`, and does not run."""
        return self._pid_file.exists() and not self.running

    @property
    def memory_bytes(self) -> int:
        """Resident memory; 0 when it does not run."""
        with suppress(FileNotFoundError, ProcessLookupError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    @property
    def cpu_seconds(self) -> float:
        """User and system time; 0 when it does not run."""
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def start(self, command: list[str], output: Path, **environment: str) -> None:
        """Starts it in a new session, with its output in a file. `environment`: added to ours."""
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                cwd="/",
                env={**os.environ, **environment},
            )
        self._pid_file.write_text(f"{process.pid}\n")

    def kill(self) -> None:
        """Kills it with SIGKILL. Returns when it has ended."""
        self._signal(signal.SIGKILL, _KILL_SECONDS)

    def stop(self) -> None:
        """Ends it with SIGTERM, and after a timeout with SIGKILL. Returns when it has ended."""
        if not self._signal(signal.SIGTERM, _STOP_SECONDS) and not self._signal(
            signal.SIGKILL, _KILL_SECONDS
        ):
            raise RawduckError(f"{self.name}: process {self.pid} does not end")
        self._pid_file.unlink(missing_ok=True)

    def _signal(self, number: int, seconds: float) -> bool:
        """Sends a signal. Returns whether the process ended within the time."""
        limit = time.monotonic() + seconds
        if (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while self.running and time.monotonic() < limit:
            time.sleep(0.02)
        return not self.running
