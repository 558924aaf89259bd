"""Memory of a GPU and pinned memory, by NVIDIA's driver alone; or host memory in the place of both.

What is measured with it is a yardstick: it has nothing of rawduck in it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from types import TracebackType
from typing import Protocol

from rawduck.errors import RawduckError

EMULATED = "emulated"
#: Of cuStreamCreate: the stream does not wait for the default one.
_NON_BLOCKING = 1


class Stream(Protocol):
    """Copies in order. Used by one thread, which made it."""

    def copy_in(self, device: int, pinned: int, size: int) -> None:
        """Begins a copy between two addresses."""

    def wait(self) -> None:
        """Until all that was begun is done."""

    def close(self) -> None: ...


class DeviceMemory(Protocol):
    """A context manager: what was allocated goes with it."""

    def __enter__(self) -> DeviceMemory: ...
    def __exit__(self, *error: object) -> None: ...
    def pinned(self, size: int) -> int:
        """Address of host memory that copies reach."""

    def allocate(self, size: int) -> int:
        """Address on the device."""

    def allocate_alone(self, size: int) -> int:
        """The same, outside of any pool: drives reach no other memory."""

    def stream(self) -> Stream: ...
    def synchronize(self) -> None:
        """Until all is done that this process has begun on the device, in whatever stream."""

    def copied_out(self, device: int, size: int) -> bytes: ...


def open_memory(device: str) -> DeviceMemory:
    """`device`: the number of a GPU, or "emulated". Raises RawduckError where there is none."""
    if device == EMULATED:
        return _Host()
    if not device.isdecimal():
        raise RawduckError(f'RAWDUCK_GPU={device!r} is neither the number of a GPU nor "{EMULATED}"')
    return _Cuda(int(device))


class _Host:
    def __init__(self) -> None:
        self._maps: list[mmap.mmap] = []

    def __enter__(self) -> _Host:
        return self

    def __exit__(self, *error: object) -> None:
        self._maps.clear()

    def pinned(self, size: int) -> int:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        self._maps.append(memory)
        return ctypes.addressof(ctypes.c_char.from_buffer(memory))

    allocate = allocate_alone = pinned

    def stream(self) -> _HostStream:
        return _HostStream()

    def synchronize(self) -> None:
        pass

    def copied_out(self, device: int, size: int) -> bytes:
        return ctypes.string_at(device, size)


class _HostStream:
    def copy_in(self, device: int, pinned: int, size: int) -> None:
        ctypes.memmove(device, pinned, size)

    def wait(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Cuda:
    def __init__(self, ordinal: int) -> None:
        name = "libcuda.so.1"
        if os.environ.get("RAWDUCK_TEST_FUNCTIONS"):  # a stand-in for tests (CONTRIBUTING.md)
            name = os.environ.get("RAWDUCK_TEST_LIBCUDA") or name
        try:
            self.driver = ctypes.CDLL(name)
        except OSError as error:
            raise RawduckError(f"NVIDIA's driver cannot be loaded: {error}") from None
        self._ordinal = ordinal
        self._pinned: list[int] = []
        self._allocated: list[int] = []
        self._alone: list[int] = []

    def __enter__(self) -> _Cuda:
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), self._ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.context, self._device = context, device
        self.enter()
        self._main = _CudaStream(self)
        pool, properties = ctypes.c_void_p(), (ctypes.c_int32 * 22)(1, 0, 1, self._ordinal)
        self.call("cuMemPoolCreate", ctypes.byref(pool), properties)
        self._pool = pool
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for address in self._allocated:
            self.call("cuMemFreeAsync", ctypes.c_uint64(address), self._main.handle)
        self._main.wait()
        for address in self._alone:
            self.call("cuMemFree_v2", ctypes.c_uint64(address))
        for address in self._pinned:
            self.call("cuMemFreeHost", ctypes.c_void_p(address))
        self._main.close()
        self.call("cuMemPoolDestroy", self._pool)
        self.leave()
        self.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def enter(self) -> None:
        """Makes the device this thread's."""
        self.call("cuCtxPushCurrent_v2", self.context)

    def leave(self) -> None:
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def pinned(self, size: int) -> int:
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), 0)
        self._pinned.append(address.value or 0)
        return self._pinned[-1]

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.call(
            "cuMemAllocFromPoolAsync",
            ctypes.byref(address),
            ctypes.c_size_t(size),
            self._pool,
            self._main.handle,
        )
        self._main.wait()
        self._allocated.append(address.value)
        return address.value

    def allocate_alone(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._alone.append(address.value)
        return address.value

    def stream(self) -> _CudaStream:
        self.enter()
        return _CudaStream(self, entered=True)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def copied_out(self, device: int, size: int) -> bytes:
        content = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(device), ctypes.c_size_t(size))
        return content.raw

    def call(self, name: str, *arguments: object) -> None:
        result = getattr(self.driver, name)(*arguments)
        if result != 0:
            raise RawduckError(f"NVIDIA's driver: {name}: error {result}")


class _CudaStream:
    def __init__(self, cuda: _Cuda, entered: bool = False) -> None:
        self._cuda, self._entered = cuda, entered
        self.handle = ctypes.c_void_p()
        cuda.call("cuStreamCreate", ctypes.byref(self.handle), _NON_BLOCKING)

    def copy_in(self, device: int, pinned: int, size: int) -> None:
        self._cuda.call(
            "cuMemcpyHtoDAsync_v2",
            ctypes.c_uint64(device),
            ctypes.c_void_p(pinned),
            ctypes.c_size_t(size),
            self.handle,
        )

    def wait(self) -> None:
        self._cuda.call("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        self._cuda.call("cuStreamDestroy_v2", self.handle)
        if self._entered:
            self._cuda.leave()
