"""A limit on all the memory of a measured process, the page cache of its files included."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rawduck.errors import RawduckError
from rawduck.measuring.measure import Result, Task

_MOUNTS = Path("/proc/self/mounts")
#: By kind of file system: what limits memory, and what limits memory and swap.
_LIMIT_FILES = {
    "cgroup": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "cgroup2": ("memory.max", "memory.swap.max"),
}


_LEAVE_SECONDS = 10


@dataclass
class CappedTask:
    """A task that joins a control group before it begins."""

    task: Task
    group: str

    def perform(self) -> Result:
        (Path(self.group) / "cgroup.procs").write_text(str(os.getpid()))
        return self.task.perform()


@dataclass(frozen=True)
class MemoryCap:
    """Where control groups can be made here, and of what kind."""

    parent: Path
    kind: str

    @staticmethod
    def find() -> MemoryCap:
        """Raises RawduckError, saying why, where no group that limits memory can be made."""
        if os.geteuid() != 0:
            raise RawduckError("only root can limit the page cache of a process (cgroup)")
        for line in _MOUNTS.read_text().splitlines():
            _, folder, kind, options = line.split()[:4]
            cap = MemoryCap(Path(folder), kind)
            if kind in _LIMIT_FILES and cap._has_memory(options) and cap._works():
                return cap
        raise RawduckError("no control group that limits memory can be made here (cgroup v1 or v2)")

    def _has_memory(self, options: str) -> bool:
        if self.kind == "cgroup":
            return "memory" in options.split(",")
        control = self.parent / "cgroup.subtree_control"
        return control.exists() and "memory" in control.read_text().split()

    def _works(self) -> bool:
        try:
            with self.group(1 << 30):
                return True
        except (OSError, RawduckError):
            return False

    @contextmanager
    def group(self, limit_bytes: int) -> Iterator[str]:
        """A new group without swap. What its processes left in the page cache counts for it until it goes."""
        group = self.parent / f"rawduck-bench-{os.getpid()}"
        group.mkdir()
        try:
            memory, swap = _LIMIT_FILES[self.kind]
            (group / memory).write_text(str(limit_bytes))
            if (group / swap).exists():
                (group / swap).write_text(str(limit_bytes if self.kind == "cgroup" else 0))
            yield str(group)
        finally:
            _remove(group)


def _remove(group: Path) -> None:
    """An interrupted process takes a moment to leave the group. One that does not keeps it."""
    until = time.monotonic() + _LEAVE_SECONDS
    while True:
        try:
            group.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise RawduckError(f"cannot remove the control group {group}: {error.strerror}") from error
        time.sleep(0.01)
