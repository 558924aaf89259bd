"""Bytes that the processor reads into pinned memory and has copied to the GPU; and copies alone."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from rawduck.measuring.gpu.device_memory import DeviceMemory, Stream, open_memory
from rawduck.measuring.measure import Result, Stopwatch

#: Of each thread: one is read into while the other one is copied.
_SLOTS = 2


@dataclass
class CopyTask:
    """Copies from pinned memory, with nothing read: what everything else is compared with."""

    device: str
    size: int
    copies: int

    def perform(self) -> Result:
        with open_memory(self.device) as memory:
            pinned, device, stream = memory.pinned(self.size), memory.allocate(self.size), memory.stream()
            stream.copy_in(device, pinned, self.size)
            stream.wait()
            with Stopwatch() as watch:
                for _ in range(self.copies):
                    stream.copy_in(device, pinned, self.size)
                stream.wait()
            stream.close()
        return watch.result(values={"gpu_bytes": float(self.size * self.copies)})


@dataclass
class StagedTask:
    """Reads blocks at these offsets of a path, by so many threads with one read in flight each.

    The answer is a checksum of what lies on the device then. `singly`: each is awaited on the device before
    the thread's next one, and how long that took is measured.
    """

    device: str
    path: str
    offsets: list[int]
    block_bytes: int
    threads: int
    singly: bool = False

    def perform(self) -> Result:
        total, latencies = len(self.offsets) * self.block_bytes, []
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        try:
            with open_memory(self.device) as memory:
                base = memory.allocate(total)
                took = latencies.append if self.singly else None
                work = _Work(descriptor, self.offsets, self.block_bytes, base, took)
                slots = [
                    [memory.pinned(self.block_bytes) for _ in range(_SLOTS)] for _ in range(self.threads)
                ]
                with Stopwatch() as watch:
                    work.run_all(memory, slots)
                rows = [(zlib.crc32(memory.copied_out(base, total)),)]
        finally:
            os.close(descriptor)
        values = latency_values(latencies) if self.singly else {"gpu_bytes": float(total)}
        return watch.result(rows=rows, values=values)


def latency_values(latencies: list[float]) -> dict[str, float]:
    ordered = sorted(latencies)
    return {
        "p50_s": ordered[len(ordered) // 2],
        "p99_s": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "reads": float(len(ordered)),
    }


class Bounce:
    """Copies from memory that is not pinned, through two slots that are, as the driver does it itself."""

    SLOT_BYTES = 16 * 1024**2

    def __init__(self, memory: DeviceMemory) -> None:
        self._slots = [(memory.pinned(self.SLOT_BYTES), memory.stream()) for _ in range(_SLOTS)]
        self._turn = itertools.cycle(self._slots)

    def copy(self, source: int, size: int, device: int) -> None:
        for at in range(0, size, self.SLOT_BYTES):
            slot, stream = next(self._turn)
            length = min(self.SLOT_BYTES, size - at)
            stream.wait()
            ctypes.memmove(slot, source + at, length)
            stream.copy_in(device + at, slot, length)

    def wait(self) -> None:
        for _, stream in self._slots:
            stream.wait()

    def close(self) -> None:
        for _, stream in reversed(self._slots):
            stream.close()


class _Work:
    """The blocks that threads share. Block i goes to `base` + i * `block_bytes`. `took`: told how long each
    took, when they are awaited one by one."""

    def __init__(
        self,
        descriptor: int,
        offsets: list[int],
        block_bytes: int,
        base: int,
        took: Callable[[float], None] | None,
    ) -> None:
        self.descriptor, self.offsets, self.block_bytes = descriptor, offsets, block_bytes
        self.base, self.took = base, took
        self.next_block = itertools.count()
        self.errors: list[Exception] = []

    def run_all(self, memory: DeviceMemory, slots: list[list[int]]) -> None:
        workers = [threading.Thread(target=self._run, args=(memory, own)) for own in slots]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self.errors:
            raise self.errors[0]

    def _run(self, memory: DeviceMemory, slots: list[int]) -> None:
        try:
            streams = [memory.stream() for _ in slots]
            views = [memoryview((ctypes.c_char * self.block_bytes).from_address(slot)) for slot in slots]
            for turn in itertools.count():
                index = next(self.next_block)
                if index >= len(self.offsets) or self.errors:
                    break
                own = turn % len(slots)
                self._bring(index, streams[own], slots[own], views[own])
            for stream in reversed(streams):
                stream.wait()
                stream.close()
        except Exception as error:
            self.errors.append(error)

    def _bring(self, index: int, stream: Stream, slot: int, view: memoryview) -> None:
        begin = time.perf_counter()
        stream.wait()  # the slot is free
        read = os.preadv(self.descriptor, [view], self.offsets[index])
        if read != self.block_bytes:
            raise OSError(f"{read} of {self.block_bytes} bytes were read at byte {self.offsets[index]}")
        stream.copy_in(self.base + index * self.block_bytes, slot, self.block_bytes)
        if self.took:
            stream.wait()
            self.took(time.perf_counter() - begin)
