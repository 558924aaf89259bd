"""Reads that a GPU asks for by itself, and that threads of the processor serve: the GPU's kernel and these
threads meet in a ring of requests in pinned host memory (src/gpu/ring)."""

from __future__ import annotations

import ctypes
import signal
import struct
import zlib
from dataclasses import dataclass
from functools import cache
from types import FrameType, TracebackType

from rawduck.connection import extension_path, register
from rawduck.errors import RawduckError
from rawduck.measuring.gpu.device_memory import open_memory
from rawduck.measuring.gpu.staged import StagedTask, latency_values
from rawduck.measuring.measure import Result, Stopwatch

_NOT_YET = 2
_NANOSECOND = 1e-9
_NUMBER = ctypes.c_uint64


class _Options(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("offsets", ctypes.POINTER(_NUMBER)),
        *((name, _NUMBER) for name in ("reads", "read_bytes", "blocks", "slots", "threads", "patience_ns")),
    )


class _Results(ctypes.Structure):
    _fields_ = (
        *((name, _NUMBER) for name in ("data", "nanoseconds", "server_cpu_ns", "blocks")),
        *((name, _NUMBER) for name in ("multiprocessors_held", "multiprocessors")),
        ("engine", ctypes.c_char_p),
    )


@cache
def _library() -> ctypes.CDLL:
    """See src/gpu/exports/ring_interface.hpp."""
    register()
    library = ctypes.CDLL(str(extension_path().with_name("librawduck_host.so")))
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    declarations = {
        "error": (ctypes.c_char_p, []),
        "ring_open": (number, [ctypes.POINTER(_Options), ctypes.POINTER(pointer)]),
        "ring_start": (number, [pointer]),
        "ring_wait": (number, [pointer]),
        "ring_read_results": (number, [pointer, ctypes.POINTER(_Results)]),
        "ring_abort": (None, [pointer]),
        "ring_close": (None, [pointer]),
    }
    for name, (result, arguments) in declarations.items():
        function = getattr(library, f"rawduck_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    return library


@dataclass
class RingTask(StagedTask):
    """The same, asked for by thread blocks of the device with one read each, and served by so many
    threads. A read takes from when a block asks for it until it is on the device, by the device's clock.

    `patience`: seconds that a block waits for one read before the run fails.
    """

    patience: float = 30.0

    def perform(self) -> Result:
        total, reads = len(self.offsets) * self.block_bytes, len(self.offsets)
        with open_memory(self.device) as memory, _Ring(self) as ring:
            # When they are handled again the kernel has ended, whatever happened.
            with _Signals() as signals, Stopwatch() as watch:
                ring.run(signals)
            results = ring.results()
            rows = [(zlib.crc32(memory.copied_out(results.data, total)),)]
            nanoseconds = struct.unpack(f"{reads}Q", memory.copied_out(results.nanoseconds, 8 * reads))
        values = {"server_cpu_seconds": results.server_cpu_ns * _NANOSECOND}
        if self.singly:
            values |= latency_values([taken * _NANOSECOND for taken in nanoseconds])
        else:
            values["gpu_bytes"] = float(total)
        held = "-"
        if results.multiprocessors_held:
            values["sms_held"] = float(results.multiprocessors_held)
            held = f"{results.multiprocessors_held} of {results.multiprocessors}"
        engine = results.engine.decode()
        path = (
            f"the CPU, by {engine}, {self.threads} threads; {results.blocks} thread blocks; SMs held: {held}"
        )
        return watch.result(rows=rows, values=values, columns=[path])


class _Ring:
    """A run; a context manager. What leaves it early ends the kernel first."""

    def __init__(self, task: RingTask) -> None:
        self._task = task
        self._run = ctypes.c_void_p()

    def __enter__(self) -> _Ring:
        task = self._task
        # While a block copies what it has got, another one's read is under way.
        blocks = task.threads if task.singly else 2 * task.threads
        options = _Options(
            task.device.encode(),
            task.path.encode(),
            (_NUMBER * len(task.offsets))(*task.offsets),
            len(task.offsets),
            task.block_bytes,
            blocks,
            blocks,
            task.threads,
            int(task.patience / _NANOSECOND),
        )
        self._require(_library().rawduck_gpu_ring_open(ctypes.byref(options), ctypes.byref(self._run)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _library().rawduck_gpu_ring_close(self._run)

    def run(self, signals: _Signals) -> None:
        self._require(_library().rawduck_gpu_ring_start(self._run))
        while self._require(_library().rawduck_gpu_ring_wait(self._run)) == _NOT_YET:
            if signals.received:
                _library().rawduck_gpu_ring_abort(self._run)

    def results(self) -> _Results:
        results = _Results()
        self._require(_library().rawduck_gpu_ring_read_results(self._run, ctypes.byref(results)))
        return results

    @staticmethod
    def _require(returned: int) -> int:
        if returned < 0:
            raise RawduckError(_library().rawduck_gpu_error().decode("utf-8", "replace"))
        return returned


class _Signals:
    """Signals that end the process do so when this context is left: a kernel that waits is ended before.

    Those that are ignored stay so."""

    _ENDING = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received = 0

    def __enter__(self) -> _Signals:
        before = {number: signal.getsignal(number) for number in self._ENDING}
        # None: one that Python has not installed and cannot put back.
        self._before = {
            number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)
        }
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.received:
            signal.raise_signal(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
