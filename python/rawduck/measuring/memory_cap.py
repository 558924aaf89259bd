"""A limit on all the memory of a measured process, the page cache of its files included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rawduck.measuring.control_group import ControlGroups, join
from rawduck.measuring.measure import Result, Task


@dataclass
class CappedTask:
    """A task that joins a control group before it begins."""

    task: Task
    group: str

    def perform(self) -> Result:
        join(Path(self.group))
        return self.task.perform()


@dataclass(frozen=True)
class MemoryCap:
    groups: ControlGroups

    @staticmethod
    def find() -> MemoryCap:
        """Raises RawduckError, saying why, where no group that limits memory can be made."""
        return MemoryCap(ControlGroups.find("memory"))

    @contextmanager
    def group(self, limit_bytes: int) -> Iterator[str]:
        """A new group without swap. What its processes left in the page cache counts for it until it goes."""
        limit = str(limit_bytes)
        if self.groups.kind == "cgroup":
            files = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
        else:
            files = {"memory.max": limit, "memory.swap.max": "0"}
        with self.groups.group(files) as group:
            yield str(group)
