"""Memory that a virtual machine has given back to its host costs whoever touches it first.

The host has to find it anew: milliseconds for each huge page instead of a tenth of one. Whether a run meets
such memory depends on what ran before it, so the harness touches memory first, for every run alike.
"""

from __future__ import annotations

import contextlib
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rawduck.errors import RawduckError
from rawduck.measuring.mapped_memory import mapped

_GROUPS = Path("/sys/fs/cgroup")
_MIB = 1024**2
#: In one mapping at a time, so that what marks its pages stays small.
_PART_BYTES = 256 * _MIB


def most_mib() -> int:
    """Half of what this process may have, whoever else has it now: of the machine's memory, or of the
    smallest limit of its control groups (v1 and v2)."""
    return min([_meminfo("MemTotal"), *(group.limit for group in _groups())]) // 2 // _MIB


def touch(mib: int) -> None:
    """Writes to every page of so much memory, in huge pages where the system has some, and gives it back.

    All of it is held at the same time. Raises RawduckError where so much is not free: in a control group the
    kernel would end this process instead of refusing it."""
    places = [(_meminfo("MemAvailable"), "")]
    places += [(group.available(), f" in the control group {group.folder}") for group in _groups()]
    available, where = min(places)
    if mib > available // _MIB:
        raise _too_little(mib, f"{available // _MIB:,} MiB are available{where}")
    left = mib * _MIB
    with contextlib.ExitStack() as stack:
        while left > 0:
            size = min(left, _PART_BYTES)
            try:
                view = stack.enter_context(mapped(size, huge_pages=True))
            except OSError as error:
                raise _too_little(mib, f"the system refuses it: {error.strerror}") from error
            with view[:: mmap.PAGESIZE] as first_bytes:
                first_bytes[:] = b"\1" * len(first_bytes)
            left -= size


def _too_little(mib: int, why: str) -> RawduckError:
    return RawduckError(
        f"cannot touch {mib:,} MiB of memory before a run: {why}; end other programs, choose a "
        "smaller --scale, or leave it out with --cold-memory"
    )


def _meminfo(name: str) -> int:
    found = re.search(rf"^{name}: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if not found:
        raise RawduckError(f"/proc/meminfo has no {name}; leave out touching memory with --cold-memory")
    return int(found[1]) * 1024


@dataclass(frozen=True)
class _Group:
    """A control group that limits memory (v1 or v2)."""

    folder: Path
    limit: int

    def available(self) -> int:
        """What its processes may still have: the page cache of files makes room."""
        for used, file_cache in (
            ("memory.current", ("inactive_file", "active_file")),
            ("memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
        ):
            with contextlib.suppress(OSError):  # it is of the other version
                counts = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
                cached = sum(int(counts.get(name, 0)) for name in file_cache)
                return max(0, self.limit - int((self.folder / used).read_text()) + cached)
        return self.limit  # it does not tell


def _groups() -> Iterator[_Group]:
    """Those of this process and all above them."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _GROUPS / "memory" if controllers else _GROUPS
        inner = root / path.lstrip("/")
        for folder in [inner, *inner.parents]:
            for name in ("memory.max", "memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
                    yield _Group(folder, int((folder / name).read_text()))
            if folder == root:
                break
