"""NVIDIA's cuFile (GPUDirect Storage), where it is installed.

Structures and constants follow its public interface, cufile.h of CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
import glob
import itertools
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rawduck.errors import RawduckError
from rawduck.measuring.gpu.device_memory import DeviceMemory, open_memory
from rawduck.measuring.gpu.staged import latency_values
from rawduck.measuring.measure import Result, Stopwatch

#: How a read was served: by DMA from the drive through nvidia-fs or the kernel alone, or through host memory.
GDS, P2PDMA, COMPAT = "gds", "p2pdma", "compat"
_OPAQUE_FD = 1
_PROBE_SECONDS = 60
_BUFFER_CALLS = ("cuFileBufRegister", "cuFileBufDeregister")
_REGISTERED = "registered"
_NVIDIA_FS = Path("/proc/driver/nvidia-fs/version")


class _Error(ctypes.Structure):
    _fields_ = (("err", ctypes.c_int), ("cu_err", ctypes.c_int))


class _Handle(ctypes.Union):
    _fields_ = (("fd", ctypes.c_int), ("handle", ctypes.c_void_p))


class _Description(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("handle", _Handle), ("operations", ctypes.c_void_p))


@dataclass(frozen=True)
class CuFile:
    """`library`: its path; `served_by`: how a read of the file that was tried was served; `is_registered`:
    whether into memory that cuFile knows. Otherwise it may read into memory of its own, and copy."""

    library: str
    served_by: str
    is_registered: bool

    @property
    def path(self) -> str:
        return self.served_by + ("" if self.is_registered else ", the GPU's memory not registered")

    @staticmethod
    def find(device: str, path: str) -> CuFile:
        """Tries it in a process of its own, which it may end or hold up for ever.

        Raises RawduckError, saying why, where it cannot be used on this file.
        """
        library = _library()
        with tempfile.TemporaryDirectory() as folder:
            direct, said = _try(library, device, path, _configured(folder, compat=False))
            if not direct:
                return CuFile(library, GDS if _NVIDIA_FS.exists() else P2PDMA, said == _REGISTERED)
            compat, said = _try(library, device, path, _configured(folder, compat=True))
        if compat:
            raise RawduckError(f"cuFile ({library}) cannot read {path}: {compat}")
        return CuFile(library, COMPAT, said == _REGISTERED)


def _library() -> str:
    """Of the system, or of the package nvidia-cufile."""
    if os.environ.get("RAWDUCK_TEST_FUNCTIONS") and os.environ.get("RAWDUCK_TEST_CUFILE"):
        return os.environ["RAWDUCK_TEST_CUFILE"]  # a stand-in for tests (CONTRIBUTING.md)
    packaged = glob.glob(f"{sysconfig.get_paths()['purelib']}/nvidia/**/libcufile.so.0", recursive=True)
    for name in (*packaged, "libcufile.so.0"):
        try:
            ctypes.CDLL(name)
            return name
        except OSError:
            continue
    raise RawduckError("cuFile is not installed (pip install nvidia-cufile, or CUDA's package libcufile)")


def _configured(folder: str, compat: bool) -> dict[str, str]:
    """For the environment. Without `compat` a read that would go through host memory fails."""
    file = Path(folder) / f"cufile-{int(compat)}.json"
    properties = {"allow_compat_mode": compat, "use_pci_p2pdma": True}
    file.write_text(json.dumps({"logging": {"level": "ERROR"}, "properties": properties}))
    return {"CUFILE_ENV_PATH_JSON": str(file)}


def _try(library: str, device: str, path: str, environment: dict[str, str]) -> tuple[str, str]:
    """Why a block of 4 KiB cannot be read, empty when it can; and what the process said."""
    command = [sys.executable, "-m", "rawduck.measuring.gpu.cufile", library, device, path]
    try:
        done = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_SECONDS,
            cwd=tempfile.gettempdir(),  # it writes a log into the working folder
        )
    except subprocess.TimeoutExpired:
        return f"it did not come back within {_PROBE_SECONDS} seconds", ""
    if done.returncode < 0:
        return f"it ended the process with signal {-done.returncode}", ""
    said = done.stdout.strip()
    lines = (done.stderr or said).strip().splitlines()
    return "" if done.returncode == 0 else lines[-1] if lines else f"exit code {done.returncode}", said


class _Opened:
    """The driver, and a file. A context manager."""

    def __init__(self, library: str, path: str) -> None:
        self._library, self._path = ctypes.CDLL(library), path
        for name in ("cuFileDriverOpen", "cuFileHandleRegister", "cuFileDriverClose", *_BUFFER_CALLS):
            getattr(self._library, name).restype = _Error
        self._library.cuFileHandleDeregister.restype = None
        self._library.cuFileRead.restype = ctypes.c_ssize_t

    def __enter__(self) -> _Opened:
        with ExitStack() as stack:
            self._call("cuFileDriverOpen")
            stack.callback(self._call, "cuFileDriverClose")
            fd = os.open(self._path, os.O_RDONLY | os.O_DIRECT)
            stack.callback(os.close, fd)
            description = _Description(_OPAQUE_FD, _Handle(fd=fd), None)
            self._handle = ctypes.c_void_p()
            self._call("cuFileHandleRegister", ctypes.byref(self._handle), ctypes.byref(description))
            stack.callback(self._library.cuFileHandleDeregister, self._handle)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def register(self, base: int, size: int) -> bool:
        """Whether reads go straight to this memory of the device from now on, until the file is closed."""
        register, deregister = (getattr(self._library, name) for name in _BUFFER_CALLS)
        address = ctypes.c_void_p(base)
        if register(address, ctypes.c_size_t(size), 0).err != 0:
            return False
        self._stack.callback(deregister, address)
        return True

    def read(self, base: int, size: int, offset: int, at: int) -> None:
        """To `base` + `at` on the device."""
        done = self._library.cuFileRead(
            self._handle,
            ctypes.c_void_p(base),
            ctypes.c_size_t(size),
            ctypes.c_int64(offset),
            ctypes.c_int64(at),
        )
        if done != size:
            raise RawduckError(f"cuFileRead of {size} bytes at byte {offset}: {done}")

    def _call(self, name: str, *arguments: object) -> None:
        error = getattr(self._library, name)(*arguments)
        if error.err != 0:
            raise RawduckError(f"{name}: error {error.err} (driver: {error.cu_err})")


@dataclass
class CuFileTask:
    """As StagedTask, by cuFileRead, which returns when the bytes are there."""

    device: str
    path: str
    offsets: list[int]
    block_bytes: int
    threads: int
    cufile: CuFile
    singly: bool = False

    def perform(self) -> Result:
        total, latencies = len(self.offsets) * self.block_bytes, []
        with tempfile.TemporaryDirectory() as folder, open_memory(self.device) as memory:
            # The driver is opened once in this process: it reads its settings then, and writes a log here.
            os.environ.update(_configured(folder, compat=self.cufile.served_by == COMPAT))
            os.chdir(folder)
            with _Opened(self.cufile.library, self.path) as file:
                base = memory.allocate_alone(total)
                file.register(base, total)
                with Stopwatch() as watch:
                    self._read_all(memory, file, base, latencies.append)
                rows = [(zlib.crc32(memory.copied_out(base, total)),)]
        values = latency_values(latencies) if self.singly else {"gpu_bytes": float(total)}
        return watch.result(rows=rows, values=values)

    def _read_all(
        self, memory: DeviceMemory, file: _Opened, base: int, took: Callable[[float], None]
    ) -> None:
        next_block, errors = itertools.count(), []

        def work() -> None:
            try:
                stream = memory.stream()  # which makes the device this thread's
                while (index := next(next_block)) < len(self.offsets) and not errors:
                    begin = time.perf_counter()
                    file.read(base, self.block_bytes, self.offsets[index], index * self.block_bytes)
                    took(time.perf_counter() - begin)
                stream.close()
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]


def _probe(library: str, device: str, path: str) -> None:
    with open_memory(device) as memory, _Opened(library, path) as file:
        base = memory.allocate_alone(4096)
        print(_REGISTERED if file.register(base, 4096) else "")
        file.read(base, 4096, 0, 0)


if __name__ == "__main__":
    try:
        _probe(*sys.argv[1:])
    except (RawduckError, OSError) as error:
        sys.exit(str(error))
