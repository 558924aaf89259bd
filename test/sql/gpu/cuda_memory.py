"""NVIDIA's driver as a consumer uses it: waits for a batch, and copies from the device. And the checker that
stands in for it (test/cuda_checker), whose faults and counts tests ask for."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import nanoarrow

CHECKER = Path(__file__).resolve().parents[3] / "build" / "host" / "libcuda_checker.so"
CUDA = 2


class Array(ctypes.Structure):
    """Of the Arrow C data interface."""


Array._fields_ = (
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
)


class DeviceArray(ctypes.Structure):
    _fields_ = (
        ("array", Array),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.POINTER(ctypes.c_void_p)),
        ("reserved", ctypes.c_int64 * 3),
    )


class Counts(ctypes.Structure):
    """As rawduck_checker_counts."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("memory", "streams", "events", "modules", "pools", "contexts"),
            *("pinned_bytes", "calls", "pool_keeps"),
        )
    )

    def held(self) -> dict[str, int]:
        """What a scan must leave as it was; the GPU itself stays open, and so do pinned slots."""
        return {name: getattr(self, name) for name in ("memory", "streams", "contexts", "pools", "modules")}


@cache
def driver() -> ctypes.CDLL:
    """In a context that stays current in this thread."""
    library = ctypes.CDLL(os.environ.get("RAWDUCK_TEST_LIBCUDA") or "libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    assert library.cuInit(0) == 0
    assert library.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    library.context = context
    return library


@cache
def checker() -> ctypes.CDLL:
    library = driver()
    library.rawduck_checker_failed.restype = ctypes.c_char_p
    library.rawduck_checker_fail.argtypes = [ctypes.c_uint64, ctypes.c_int]
    library.rawduck_checker_limit.argtypes = [ctypes.c_uint64]
    return library


def counts() -> Counts:
    counted = Counts()
    checker().rawduck_checker_count(ctypes.byref(counted))
    return counted


def copied(address: int, size: int) -> bytes:
    """From the device, in the default stream."""
    if size == 0:
        return b""
    library = driver()
    content = ctypes.create_string_buffer(size)
    popped = ctypes.c_void_p()
    assert library.cuCtxPushCurrent_v2(library.context) == 0
    try:
        result = library.cuMemcpyDtoH_v2(content, ctypes.c_uint64(address), ctypes.c_size_t(size))
        assert result == 0, f"cuMemcpyDtoH: {result}"
    finally:
        library.cuCtxPopCurrent_v2(ctypes.byref(popped))
    return content.raw


def pointer_in(capsule: Any, name: bytes) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer(capsule, name)


def wait_for(event: ctypes.c_void_p) -> None:
    library = driver()
    popped = ctypes.c_void_p()
    assert library.cuCtxPushCurrent_v2(library.context) == 0
    assert library.cuEventSynchronize(event) == 0
    library.cuCtxPopCurrent_v2(ctypes.byref(popped))


def width_of(format_text: str) -> int:
    kind, _, parameters = format_text.partition(":")
    if kind == "w":
        return int(parameters)
    if kind == "d":
        return int(f"{parameters},128".split(",")[2]) // 8
    return {"c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "f": 4, "tdD": 4}.get(kind, 8)


def host_array(column: Any) -> Any:
    """A column on a GPU as an array of nanoarrow in host memory, by Arrow's device interface."""
    _, capsule = column.__arrow_c_device_array__()
    device_array = DeviceArray.from_address(pointer_in(capsule, b"arrow_device_array"))
    assert (device_array.device_type, device_array.device_id) == (CUDA, 0)
    wait_for(ctypes.c_void_p(device_array.sync_event[0]))
    array, rows, form = device_array.array, device_array.array.length, column.format
    buffers = [array.buffers[i] or 0 for i in range(array.n_buffers)]
    bitmap_bytes = (rows + 7) // 8
    content: list[bytes | None] = [copied(buffers[0], bitmap_bytes) if buffers[0] else None]
    if form in ("u", "z"):
        content.append(copied(buffers[1], 4 * (rows + 1)))
        content.append(copied(buffers[2], int.from_bytes(content[1][-4:], "little")))
    else:
        content.append(copied(buffers[1], bitmap_bytes if form == "b" else rows * width_of(form)))
    return nanoarrow.c_array_from_buffers(
        nanoarrow.c_schema(column), rows, content, null_count=array.null_count
    )


def stream_of_a_consumer(flags: int) -> ctypes.c_void_p:
    popped, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver().cuCtxPushCurrent_v2(driver().context) == 0
    assert driver().cuStreamCreate(ctypes.byref(stream), flags) == 0
    driver().cuCtxPopCurrent_v2(ctypes.byref(popped))
    return stream


def taken(column: Any, interface: str, stream: ctypes.c_void_p) -> tuple[int, Any]:
    """Where the numbers of a column lie, and what keeps them, as a consumer gets both. Its stream waits."""
    library, is_default = driver(), stream.value == 1
    if interface == "dlpack":
        capsule = column.__dlpack__(stream=None if is_default else stream.value)
        tensor = pointer_in(capsule, b"dltensor")
        return ctypes.c_uint64.from_address(tensor).value, capsule
    event = ctypes.c_void_p()
    if interface == "arrow":
        _, capsule = column.__arrow_c_device_array__()
        array = DeviceArray.from_address(pointer_in(capsule, b"arrow_device_array"))
        assert library.cuStreamWaitEvent(stream, ctypes.c_void_p(array.sync_event[0]), 0) == 0
        return array.array.buffers[1], capsule
    form = column.__cuda_array_interface__
    assert library.cuEventCreate(ctypes.byref(event), 0) == 0
    assert library.cuEventRecord(event, ctypes.c_void_p(form["stream"])) == 0
    assert library.cuStreamWaitEvent(stream, event, 0) == 0
    assert library.cuEventDestroy_v2(event) == 0
    return form["data"][0], column
