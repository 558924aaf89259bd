"""Memory that a virtual machine has given back to its host costs whoever touches it first.

The host has to find it anew: milliseconds for each huge page instead of a tenth of one. Whether a run meets
such memory depends on what ran before it, so the harness touches memory first, for every run alike.
"""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

_PAGE_BYTES = 4096
_HUGE_PAGE_BYTES = 2 * 1024**2
#: In one mapping at a time, so that what marks its pages stays small.
_PART_BYTES = 256 * 1024**2


def available_bytes() -> int:
    """What programs may take without swapping, as the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return 0


def touch(wanted_bytes: int) -> int:
    """Writes to every page of so much memory, in huge pages where the system has some, and gives it back.

    All of it is held at the same time, at most half of what is available. Returns the bytes."""
    left = min(wanted_bytes, available_bytes() // 2) // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
    total = left
    with contextlib.ExitStack() as stack:
        while left > 0:
            size = min(left, _PART_BYTES)
            memory = stack.enter_context(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            with contextlib.suppress(OSError):  # a kernel without huge pages
                memory.madvise(mmap.MADV_HUGEPAGE)
            with memoryview(memory) as view, view[::_PAGE_BYTES] as first_bytes:
                first_bytes[:] = b"\1" * len(first_bytes)
            left -= size
    return total
