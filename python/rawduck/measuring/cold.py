"""Makes a file cold: none of it left in the page cache, and proof of it."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def evict(path: str | os.PathLike[str]) -> int:
    """Writes a file back and drops it from the page cache. Returns how many bytes stayed: 0 when it is cold.

    Only this file is dropped, so that a measurement after it does not pay for reloading the program itself.
    If the kernel keeps some of it, root drops every cache of the machine.
    """
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        left = resident_bytes(file.fileno())
        if left and os.geteuid() == 0 and os.access(_DROP_CACHES, os.W_OK):
            _DROP_CACHES.write_text("3\n")
            left = resident_bytes(file.fileno())
    return left


def resident_bytes(descriptor: int) -> int:
    """Bytes of a regular file in the page cache, as mincore(2) sees them; 0 for what cannot be mapped."""
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return 0
    try:
        pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        if _libc.mincore(address, size, pages) != 0:
            return 0
        return sum(byte & 1 for byte in pages.raw) * mmap.PAGESIZE
    finally:
        _libc.munmap(address, size)
