"""What the SQL tests share: targets, child processes, and a hand on the bytes of a volume."""

from __future__ import annotations

import itertools
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import rawduck
from rawduck.volumes import format_volume

#: With one size of LBAs for each place; the others are long tests.
_USUAL_KINDS = ("memory-4096", "file-512", "loop-4096")
KINDS = tuple(
    pytest.param(f"{place}-{lba}", marks=[pytest.mark.long] * (f"{place}-{lba}" not in _USUAL_KINDS))
    for place in ("memory", "file", "loop")
    for lba in (512, 4096)
)
DURABLE_KINDS = tuple(kind for kind in KINDS if not kind.values[0].startswith("memory"))

CHILD_SECONDS = 60
#: The progress bar would be printed among the answers.
CONNECT = "connection = rawduck.connect()\nconnection.execute('SET enable_progress_bar = false')\n"

_numbers = itertools.count()


@dataclass(frozen=True)
class Target:
    """A formatted target that belongs to one test."""

    kind: str
    name: str
    lba_size: int

    def path(self, file: str) -> str:
        return f"nvme://{self.name}/{file}"


@contextmanager
def make_target(kind: str, folder: Path, size: str = "256M"):
    """Formats a new target of a kind such as 'loop-512'; gives it back afterwards."""
    medium, lba_size = kind.split("-")
    number = next(_numbers)
    if medium == "memory":
        target = Target(kind, f"memory:test{number}", int(lba_size))
        format_target(target, size)
        yield target
    elif medium == "file":
        path = folder / f"volume{number}.rawduck"
        target = Target(kind, str(path), int(lba_size))
        format_target(target, size)
        yield target
        path.unlink()
    else:
        with loop_device(folder / f"disk{number}.img", int(lba_size), size) as device:
            target = Target(kind, device, int(lba_size))
            format_target(target)
            yield target


def format_target(target: Target, size: str = "") -> None:
    with rawduck.connect() as connection:
        format_volume(connection, target.name, size=size, lba_size=target.lba_size)


@contextmanager
def loop_device(image: Path, sector_size: int, size: str = "256M"):
    """A block device over a new file; the test is skipped, and says why, where there can be none."""
    with image.open("wb") as file:
        file.truncate(size_bytes(size))
    losetup = shutil.which("losetup", path="/usr/sbin:/sbin:/usr/bin")
    if not losetup:
        pytest.skip("no loop device: losetup is not installed")
    options = ["--find", "--show", "--direct-io=on", "--sector-size", str(sector_size)]
    result = subprocess.run([losetup, *options, image], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        pytest.skip(f"no loop device: {result.stderr.strip()}")
    device = result.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run([losetup, "--detach", device], check=True)
        image.unlink(missing_ok=True)


def size_bytes(text: str) -> int:
    return int(text[:-1]) * {"K": 1024, "M": 1024**2, "G": 1024**3}[text[-1]]


def attach(connection, target: Target, file: str, options: str = "") -> str:
    """Attaches a database of a volume under the stem of its name."""
    name = Path(file).stem
    connection.execute(f"ATTACH '{target.path(file)}' AS {name} {options}")
    return name


def one(connection, query: str, *parameters):
    """The single value of a query."""
    return connection.execute(query, list(parameters)).fetchone()[0]


def file_names(connection, target: Target) -> list[str]:
    query = "SELECT name FROM nvme_files(?) ORDER BY name"
    return [row[0] for row in connection.execute(query, [target.name]).fetchall()]


@contextmanager
def start_python(code: str, *arguments: str, within: tuple[str, ...] = (), before: str = CONNECT):
    """A child process that runs Python code with `connection`, a fresh rawduck.connect(), at hand.

    `within`: a command that starts it, such as unshare. `before`: what it does first instead of connecting.
    """
    preamble = f"import os, sys, time, duckdb, rawduck\n{before}"
    command = [*within, sys.executable, "-c", preamble + textwrap.dedent(code), *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    child = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
    try:
        yield child
    finally:
        # Whatever the test has made of it, nothing of it stays behind, its own children included.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def run_python(code: str, *arguments: str, **options) -> str:
    """Runs such a child to its end. Returns what it printed."""
    with start_python(code, *arguments, **options) as child:
        output, errors = child.communicate(timeout=CHILD_SECONDS)
        assert child.returncode == 0, errors
    return output.strip()


def kill_when_ready(code: str, *arguments: str) -> str:
    """Kills such a child with SIGKILL when it has printed a line starting with 'ready'. Returns the line."""
    with start_python(code, *arguments) as child:
        line = child.stdout.readline()
        child.kill()
        _, errors = child.communicate(timeout=CHILD_SECONDS)
        assert line.startswith("ready"), errors
    return line.strip()


def run_cli(*arguments: str) -> subprocess.CompletedProcess:
    """The `rawduck` command, as a user starts it."""
    command = [str(Path(sys.executable).with_name("rawduck")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


class AtTerminal:
    """The `rawduck` command with a terminal for input and output, while somebody looks and answers."""

    def __init__(self, *arguments: str, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        # Without the lines, a dumb terminal has 80 columns.
        environment = {**os.environ, "COLUMNS": str(columns), "LINES": "50", "TERM": "dumb"}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        command = [str(Path(sys.executable).with_name("rawduck")), *arguments]
        self._child = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        os.close(theirs)
        self._bytes = b""

    @property
    def printed(self) -> str:
        return self._bytes.decode(errors="replace")

    def read(self) -> bool:
        """What is printed next. Whether there was anything, and not the end."""
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # the other end was closed
            piece = b""
        self._bytes += piece
        return bool(piece)

    def read_until(self, text: str) -> None:
        while text not in "".join(self.printed.splitlines()):
            assert self.read(), self.printed

    def answer(self, text: str) -> None:
        os.write(self._ours, f"{text}\n".encode())

    def interrupt(self) -> None:
        """As often as somebody would press it: Python misses what comes just before it waits for input."""
        for _ in range(3):
            self._child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(timeout=20)
                break

    def end_input(self) -> None:
        os.write(self._ours, b"\x04")

    def end(self) -> tuple[int, str]:
        """Exit code and all that was printed."""
        while self.read():
            pass
        os.close(self._ours)
        return self._child.wait(timeout=CHILD_SECONDS), self.printed


def at_terminal(*arguments: str, answer: str = "", columns: int = 80) -> tuple[int, str]:
    """Exit code and what was printed, where the answer is there before the question."""
    terminal = AtTerminal(*arguments, columns=columns)
    terminal.answer(answer)
    return terminal.end()


def failed(*arguments: str) -> str:
    """Runs a command that must fail; returns its message, which is one line without a traceback."""
    result = run_cli(*arguments)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert result.stderr.startswith("rawduck: ")
    return result.stderr


def succeeded(*arguments: str) -> str:
    result = run_cli(*arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


SUPERBLOCK_BYTES = 4096
VERSION_OFFSET = 12
CRC_OFFSET = 8


class Image:
    """The bytes of a volume in a regular file."""

    def __init__(self, target: Target) -> None:
        self._path = Path(target.name)
        self.superblock_offsets = (0, self._path.stat().st_size - SUPERBLOCK_BYTES)

    def read(self, offset: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def write(self, offset: int, data: bytes) -> None:
        with self._path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def damage_superblock(self, number: int) -> None:
        """Flips one bit that nothing but the checksum protects."""
        offset = self.superblock_offsets[number] + SUPERBLOCK_BYTES - 1
        self.write(offset, bytes([self.read(offset, 1)[0] ^ 1]))

    def set_version(self, number: int, version: int) -> None:
        """Rewrites the format version, with a checksum that is right for it."""
        offset = self.superblock_offsets[number]
        block = bytearray(self.read(offset, SUPERBLOCK_BYTES))
        struct.pack_into("<I", block, VERSION_OFFSET, version)
        struct.pack_into("<I", block, CRC_OFFSET, 0)
        struct.pack_into("<I", block, CRC_OFFSET, crc32c(bytes(block)))
        self.write(offset, bytes(block))


def crc32c(data: bytes) -> int:
    """The Castagnoli checksum, bit by bit: independent of the implementation under test."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
