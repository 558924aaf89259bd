"""Memory of the harness's own, in pages of a chosen size."""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Iterator

HUGE_PAGE_BYTES = 2 * 1024**2


@contextlib.contextmanager
def mapped(size: int, huge_pages: bool) -> Iterator[memoryview]:
    """At least so many zeroed bytes, in huge pages where they are wanted and the system has some, or else in
    small ones. Raises OSError."""
    length = -(-size // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    with mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE)
        with memoryview(memory) as view:
            yield view
