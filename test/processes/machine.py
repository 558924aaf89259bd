"""What the machine lends the tests of several processes: loop devices, file systems, nodes, a throttle.

Everything is made for one test and taken away after it, whatever happened in between. A test that needs what
this machine or this user does not have is skipped, with the reason.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"
MIB = 1024**2
_RELEASE_SECONDS = 60
_numbers = itertools.count()


def tool(name: str) -> str:
    path = shutil.which(name, path=SBIN)
    if not path:
        pytest.skip(f"{name} is not installed")
    return path


def call(name: str, *arguments: str | Path) -> subprocess.CompletedProcess:
    """Never raises: what a tool answers is often what is asked for."""
    return subprocess.run(
        [tool(name), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
    )


def must(name: str, *arguments: str | Path) -> str:
    result = call(name, *arguments)
    assert result.returncode == 0, f"{name} {arguments}: {result.stderr}"
    return result.stdout.strip()


def persist(name: str, *arguments: str | Path) -> None:
    """For cleaning up: a device stays busy until the last request of a killed process is done."""
    deadline = time.monotonic() + _RELEASE_SECONDS
    while (result := call(name, *arguments)).returncode != 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert result.returncode == 0, f"{name} {arguments}: {result.stderr}"


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, for loop devices and mounts")


def new_image(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


@contextmanager
def loop_over(image: str | Path, *options: str) -> Iterator[str]:
    """A block device over a file that is there."""
    need_root()
    result = call("losetup", "--find", "--show", "--direct-io=on", *options, image)
    if result.returncode != 0:
        pytest.skip(f"no loop device: {result.stderr.strip()}")
    device = result.stdout.strip()
    try:
        forget_partitions(device)
        yield device
    finally:
        detach_loop(device)


def forget_partitions(device: str) -> None:
    """Those that only the kernel knows stay with the number of the loop device, when a test was killed."""
    name = Path(device).name
    for partition in Path(f"/sys/block/{name}").glob(f"{name}p*"):
        call("delpart", device, (partition / "partition").read_text().strip())


def detach_loop(device: str) -> None:
    """While somebody has it open the kernel only marks it; the backing file is free when that is over."""
    image = _backing_file(device)
    persist("losetup", "--detach", device)
    deadline = time.monotonic() + _RELEASE_SECONDS
    while _backing_file(device) == image != "" and time.monotonic() < deadline:
        time.sleep(0.02)


def _backing_file(device: str) -> str:
    try:
        return Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip()
    except OSError:
        return ""


@contextmanager
def mounted(source: str | Path, folder: Path, *options: str) -> Iterator[Path]:
    need_root()
    if not folder.exists():
        folder.mkdir()
    result = call("mount", *options, source, folder)
    if result.returncode != 0:
        pytest.skip(f"cannot mount: {result.stderr.strip()}")
    try:
        yield folder
    finally:
        persist("umount", folder)


@contextmanager
def file_system(folder: Path, size: int) -> Iterator[tuple[Path, str]]:
    """An ext4 file system of its own on a loop device: its folder and its device."""
    image = new_image(folder / f"fs{next(_numbers)}.img", size)
    with loop_over(image) as device:
        must("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        with mounted(device, folder / f"{image.stem}.mount") as mount_point:
            yield mount_point, device
    image.unlink()


@contextmanager
def second_node(device: str, folder: Path) -> Iterator[str]:
    """Another name of a block device, as containers make them."""
    need_root()
    path = folder / f"node{next(_numbers)}"
    try:
        os.mknod(path, stat.S_IFBLK | 0o600, os.stat(device).st_rdev)
    except OSError as error:
        pytest.skip(f"no device node here: {error}")
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        path.unlink()
        pytest.skip(f"device nodes in {folder} cannot be opened: {error}")
    try:
        yield str(path)
    finally:
        path.unlink()


@contextmanager
def partition_of(device: str, start: int, size: int, folder: Path) -> Iterator[str]:
    """A partition that only the kernel knows; nothing is written."""
    must("addpart", device, "1", str(start // 512), str(size // 512))
    name = Path(device).name
    entry = Path(f"/sys/block/{name}/{name}p1")
    try:
        if not entry.exists():
            pytest.skip("the kernel makes no partitions of loop devices")
        usual = Path(f"/dev/{entry.name}")
        if usual.exists():
            yield str(usual)
            return
        # Where /dev is no devtmpfs nobody makes the node.
        major, minor = map(int, (entry / "dev").read_text().split(":"))
        path = folder / entry.name
        os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
        try:
            yield str(path)
        finally:
            path.unlink()
    finally:
        persist("delpart", device, "1")


class Throttle:
    """Processes that join it write and read a device as slowly as is said. By control groups, v1 or v2."""

    def __init__(self, group: Path, device: str, version: int) -> None:
        self._group, self._version = group, version
        number = os.stat(device).st_rdev
        self._device = f"{os.major(number)}:{os.minor(number)}"

    def join(self, pid: int) -> None:
        (self._group / "cgroup.procs").write_text(str(pid))

    def set(self, operation: str, bytes_per_second: int | None) -> None:
        """`operation` is read or write; None takes the limit away, and lets go what waits."""
        if self._version == 1:
            file = self._group / f"blkio.throttle.{operation}_bps_device"
            file.write_text(f"{self._device} {bytes_per_second or 0}")
        else:
            amount = bytes_per_second or "max"
            (self._group / "io.max").write_text(f"{self._device} {operation[0]}bps={amount}")


@contextmanager
def throttle(device: str) -> Iterator[Throttle]:
    need_root()
    parent, version = _control_groups()
    group = parent / f"rawduck-test-{os.getpid()}-{next(_numbers)}"
    group.mkdir()
    made = Throttle(group, device, version)
    try:
        try:
            for operation in ("read", "write"):
                made.set(operation, None)
        except OSError as error:
            pytest.skip(f"this kernel cannot throttle {device}: {error}")
        yield made
    finally:
        # What still waits would wait for ever once the group is gone, and so would whoever unmounts the disk.
        for operation in ("read", "write"):
            with suppress(OSError):
                made.set(operation, None)
        deadline = time.monotonic() + _RELEASE_SECONDS
        while group.exists() and time.monotonic() < deadline:
            for pid in (group / "cgroup.procs").read_text().split():
                with suppress(OSError):
                    (parent / "cgroup.procs").write_text(pid)
            with suppress(OSError):
                group.rmdir()
            time.sleep(0.05)


def _control_groups() -> tuple[Path, int]:
    first = Path("/sys/fs/cgroup/blkio")
    if (first / "blkio.throttle.write_bps_device").exists():
        return first, 1
    for second in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        controllers = second / "cgroup.subtree_control"
        if controllers.exists() and "io" in controllers.read_text().split():
            return second, 2
    pytest.skip(
        "no throttle: there is neither blkio of cgroup v1 nor a cgroup v2 with io in cgroup.subtree_control"
    )


def locks_on(path: str | Path) -> list[str]:
    """What /proc/locks says of a file, which is not opened for it."""
    inode = f":{os.stat(path).st_ino}"
    lines = Path("/proc/locks").read_text().splitlines()
    return [line.split(": ", 1)[1] for line in lines if line.split()[-3].endswith(inode)]
