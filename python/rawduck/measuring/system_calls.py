"""Counts the system calls of this process, where the kernel lets it: see perf_event_open(2)."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

_TRACEPOINT_IDS = (
    Path("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id"),
    Path("/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id"),
)
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_TYPE_TRACEPOINT = 2
_ATTRIBUTES_BYTES = 64
_INHERIT = 1 << 1
_libc = ctypes.CDLL(None, use_errno=True)


class SystemCalls:
    """A running count, as long as the process lives: of the thread that makes this, and of all threads begun
    after it."""

    def __init__(self) -> None:
        """Raises OSError where they cannot be counted: only root can, with tracefs mounted."""
        found = [path for path in _TRACEPOINT_IDS if os.access(path, os.R_OK)]
        number = _PERF_EVENT_OPEN.get(platform.machine())
        if not found or number is None:
            raise PermissionError("system calls are counted only for root, with tracefs mounted")
        tracepoint = int(found[0].read_text())
        attributes = struct.pack(
            "=IIQQQQQIIQ", _TYPE_TRACEPOINT, _ATTRIBUTES_BYTES, tracepoint, 0, 0, 0, _INHERIT, 0, 0, 0
        )
        any_cpu, no_group = -1, -1
        self._descriptor = _libc.syscall(number, attributes, 0, any_cpu, no_group, 0)
        if self._descriptor < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), "perf_event_open")

    def count(self) -> int:
        return struct.unpack("=Q", os.read(self._descriptor, 8))[0]
