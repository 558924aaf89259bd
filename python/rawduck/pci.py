"""NVMe controllers as PCI functions: which driver has them, and what depends on that."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rawduck.errors import RawduckError

KERNEL_DRIVER = "nvme"
VFIO_DRIVER = "vfio-pci"
# Tests have a tree of their own.
ROOT = Path("/")
_NVME_CLASS = "0x0108"
# Domains above ffff are those of controllers that have a bus of their own (VMD).
_ADDRESS = re.compile(r"(?:[0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# The path of a namespace with several paths names the controller in the middle: nvme0c1n1 leads to nvme0n1.
_NAMESPACE = re.compile(r"(nvme\d+)(?:c\d+)?(n\d+)")
_EFI_SYSTEM_PARTITION = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
_DRIVER_SECONDS = 10.0


class Function:
    """One NVMe controller. What is told is as of the call."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.directory = _bus("devices", address)

    @property
    def driver(self) -> str:
        """Empty: none."""
        return _link_name(self.directory / "driver")

    @property
    def iommu_group(self) -> str:
        """Empty: there is no IOMMU."""
        return _link_name(self.directory / "iommu_group")

    @property
    def group_node(self) -> Path:
        return ROOT / "dev/vfio" / self.iommu_group

    def others_in_group(self) -> list[str]:
        """Functions that the IOMMU cannot tell from this one and that another driver has."""
        found = []
        for entry in sorted((self.directory / "iommu_group/devices").glob("*")):
            driver = _link_name(entry / "driver")
            if entry.name != self.address and driver not in ("", VFIO_DRIVER, "pcieport"):
                found.append(f"{entry.name} ({driver})")
        return found

    def controllers(self) -> list[str]:
        """The kernel's name, such as nvme0; empty while another driver has it."""
        return sorted(entry.name for entry in (self.directory / "nvme").glob("nvme*"))

    def namespaces(self) -> list[str]:
        """Of the block devices, such as nvme0n1."""
        names: set[str] = set()
        for controller in self.controllers():
            names |= _names_below(self.directory / "nvme" / controller)
        return sorted(name for name in names if block(name).exists())

    def siblings(self) -> Iterator[tuple[str, str]]:
        """Controllers of its subsystem through which the kernel reaches a namespace of it, too; and that."""
        for controller in self.controllers():
            for entry in (ROOT / "sys/class/nvme-subsystem").glob(f"*/{controller}"):
                for sibling in sorted(entry.parent.glob("nvme*")):
                    if sibling.name == controller or not re.fullmatch(r"nvme\d+", sibling.name):
                        continue
                    for name in sorted(_namespaces_below(entry) & _namespaces_below(sibling)):
                        yield sibling.name, name

    def nodes(self) -> list[Path]:
        """Everything through which somebody could use it: controller, namespaces, partitions."""
        names = self.controllers()
        for name in self.namespaces():
            names += [name, *(partition.name for partition in _partitions(name))]
            names.append(name.replace("nvme", "ng", 1))
        return [node for name in names if (node := ROOT / "dev" / name).exists()]

    def model(self) -> str:
        for controller in self.controllers():
            return (self.directory / "nvme" / controller / "model").read_text().strip()
        return ""

    def hand_to(self, driver: str) -> None:
        """Takes it from the driver that has it. Throws RawduckError; then the kernel's has it again."""
        problem = ""
        with _undisturbed():
            try:
                self._rebind(driver)
            except PermissionError as error:
                problem = f"drivers are changed by root only ({error})"
            except OSError as error:
                problem = f"{driver} does not take it ({error})"
            if self.driver == driver:
                return
            with contextlib.suppress(OSError):
                if driver != KERNEL_DRIVER:
                    self._rebind(KERNEL_DRIVER)
        now = f"the driver {self.driver}" if self.driver else "no driver"
        problem = problem or f"{driver} does not take it"
        raise RawduckError(f"{self.address}: {problem}, so it has {now}; see the kernel log (dmesg)")

    def forget_preference(self) -> None:
        """For vfio-pci, which an interrupted hand-over has left: it would get the controller next time."""
        preference = self.directory / "driver_override"
        if preference.exists() and preference.read_text().strip() == VFIO_DRIVER:
            _write(preference, "\n")

    def _rebind(self, driver: str) -> None:
        # The kernel's own choice needs no preference, and vfio-pci never gets what it was not told to take.
        _write(self.directory / "driver_override", "\n" if driver == KERNEL_DRIVER else driver)
        if self.driver:
            _write(self.directory / "driver/unbind", self.address)
        _write(_bus("drivers_probe"), self.address)
        wait_for(lambda: self.driver == driver)


def functions() -> list[Function]:
    entries = sorted(_bus("devices").glob("*"))
    return [Function(entry.name) for entry in entries if _is_nvme(entry)]


def find(name: str) -> Function:
    """By its address, a target on it (vfio:...), or a node of the kernel's driver."""
    address = name.removeprefix("nvme://").removeprefix("vfio:")
    match = _ADDRESS.match(address)
    if match and re.fullmatch(r"(n\d+)?", address[match.end() :]):
        directory = _bus("devices", match[0])
        if not directory.exists():
            raise RawduckError(f"{name}: there is no PCI function {match[0]}; see `rawduck vfio list`")
        if not _is_nvme(directory):
            raise RawduckError(f"{name}: the PCI function {match[0]} is no NVMe controller")
        return Function(match[0])
    node = Path(os.path.realpath(name))
    for function in functions():
        if node in function.nodes():
            return function
    raise RawduckError(
        f"{name}: this is neither a PCI function, such as 0000:01:00.0, nor a node of an NVMe drive; "
        "`rawduck vfio list` shows which are"
    )


def boot_partition(namespace: str) -> str:
    """The partition that firmware starts from; empty where there is none, or nobody has told udev."""
    for partition in _partitions(namespace):
        number = (partition / "dev").read_text().strip()
        record = ROOT / f"run/udev/data/b{number}"
        if record.exists() and f"E:ID_PART_ENTRY_TYPE={_EFI_SYSTEM_PARTITION}" in record.read_text():
            return f"/dev/{partition.name}"
    return ""


def openers(nodes: list[Path]) -> Iterator[tuple[Path, str]]:
    """Processes that have one of the nodes open or mapped, as far as this user may look, but for this one."""
    numbers = {number: node for node in nodes if node.exists() and (number := _number(os.stat(node)))}
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        for node in _opened(process, numbers):
            yield node, f"process {process.name} ({_name_of(process)})"


def locked(nodes: list[Path]) -> Iterator[Path]:
    """Nodes with a lock on them, whoever has it: also of a process whose requests outlive it."""
    wanted = {}
    for node in nodes:
        status = os.stat(node)
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        wanted[f"{device}:{status.st_ino}"] = node
    for line in Path("/proc/locks").read_text().splitlines():
        for word in line.split():
            if word in wanted:
                yield wanted[word]


def wait_for(condition: Callable[[], bool], seconds: float = _DRIVER_SECONDS) -> bool:
    """For a driver that was asked for, or a node that udev makes. False: it did not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def driver_is_there(driver: str) -> bool:
    return _bus("drivers", driver).exists()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals that end this process come afterwards: between two drivers a controller has none."""
    came: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is None:  # it is not Python's, which could not restore it
                continue
            handlers[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            os.kill(os.getpid(), number)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _names_below(controller: Path) -> set[str]:
    """Of the namespaces that the kernel reaches through it, whichever way it numbers them."""
    matches = (_NAMESPACE.fullmatch(entry.name) for entry in controller.iterdir())
    return {"".join(match.groups()) for match in matches if match}


def _namespaces_below(controller: Path) -> set[str]:
    """What tells them apart within a subsystem: without multipathing each path has a device of its own."""
    names = _names_below(controller)
    return {_read(block(name) / "wwid") or name for name in names}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(status: os.stat_result) -> tuple[int, int] | None:
    """Of a device: block and character devices are counted apart. None: it is something else."""
    kind = stat.S_IFMT(status.st_mode)
    return (kind, status.st_rdev) if kind in (stat.S_IFBLK, stat.S_IFCHR) else None


def _opened(process: Path, numbers: dict[tuple[int, int], Path]) -> set[Path]:
    found = set()
    try:
        for opened in itertools.chain((process / "fd").iterdir(), _mapped(process)):
            try:
                number = _number(opened.stat())
            except OSError:
                continue
            if number in numbers:
                found.add(numbers[number])
    except OSError:  # it has ended, or is somebody else's
        pass
    return found


def _mapped(process: Path) -> Iterator[Path]:
    """Memory that is a device's, whose descriptor may be closed."""
    for line in (process / "maps").read_text(errors="replace").splitlines():
        addresses, *_, name = line.split(maxsplit=5)
        if name.startswith("/dev/"):
            first, end = (int(address, 16) for address in addresses.split("-"))
            yield process / "map_files" / f"{first:x}-{end:x}"


def _name_of(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "ended"


def _is_nvme(directory: Path) -> bool:
    try:
        return (directory / "class").read_text().startswith(_NVME_CLASS)
    except OSError:
        return False


def block(name: str) -> Path:
    """Of a block device, in /sys."""
    return ROOT / "sys/block" / name


def _bus(*parts: str) -> Path:
    return ROOT.joinpath("sys/bus/pci", *parts)


def _partitions(namespace: str) -> list[Path]:
    return sorted(entry.parent for entry in block(namespace).glob("*/partition"))


def _link_name(path: Path) -> str:
    return os.path.basename(os.readlink(path)) if path.is_symlink() else ""
