"""A plain reader that shows what a device can do: O_DIRECT, many reads in flight, and nothing done with the
data."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator

from rawduck.measuring.mapped_memory import mapped

BLOCK_BYTES = 256 * 1024
DEPTH = 16


def read_ranges(
    path: str,
    ranges: list[tuple[int, int]],
    depth: int = DEPTH,
    block_bytes: int = BLOCK_BYTES,
    huge_pages: bool = True,
) -> int:
    """Reads byte ranges (offset, length; both aligned for the device). Returns the bytes read.

    `depth` threads take the next block each; a read releases the interpreter lock, so many are in flight.
    Some disks are twice as fast into huge pages as into small ones.
    """
    blocks = list(_split(ranges, block_bytes))
    next_block = itertools.count()
    totals: list[int] = []
    errors: list[OSError] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def work(memory: memoryview) -> None:
        total = 0
        try:
            while (index := next(next_block)) < len(blocks):
                offset, length = blocks[index]
                with memory[:length] as buffer:
                    total += os.preadv(descriptor, [buffer], offset)
        except OSError as error:
            errors.append(error)
        totals.append(total)

    try:
        with mapped(depth * block_bytes, huge_pages) as memory, contextlib.ExitStack() as stack:
            shares = [
                stack.enter_context(memory[i * block_bytes : (i + 1) * block_bytes]) for i in range(depth)
            ]
            threads = [threading.Thread(target=work, args=(share,)) for share in shares]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        os.close(descriptor)
    if errors:
        raise errors[0]
    return sum(totals)


def _split(ranges: list[tuple[int, int]], block_bytes: int) -> Iterator[tuple[int, int]]:
    for offset, length in ranges:
        for start in range(0, length, block_bytes):
            yield offset + start, min(block_bytes, length - start)


def take(ranges: list[tuple[int, int]], total: int, alignment: int = 4096) -> list[tuple[int, int]]:
    """The first `total` bytes of ranges, rounded up to the alignment; all of them when they hold less."""
    taken: list[tuple[int, int]] = []
    left = -(-total // alignment) * alignment
    for offset, length in ranges:
        if left <= 0:
            break
        taken.append((offset, min(length, left)))
        left -= length
    return taken
