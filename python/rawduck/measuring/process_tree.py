"""CPU time of processes with everything that they have started."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def tree_cpu_seconds(roots: Iterable[int]) -> float:
    """User and system time so far of these processes and their descendants, ended ones included."""
    children: dict[int, list[int]] = {}
    ended_ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(folder.name))
            ended_ticks[int(folder.name)] = int(fields[13]) + int(fields[14])
    seconds, left = 0.0, [pid for pid in roots if pid in ended_ticks]
    while left:
        pid = left.pop()
        seconds += ended_ticks[pid] / os.sysconf("SC_CLK_TCK")
        with suppress(OSError):  # it has just ended
            seconds += time.clock_gettime((~pid << 3) | 2)  # the clock that the kernel has for a process
        left += children.get(pid, [])
    return seconds
