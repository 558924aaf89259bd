"""`rawduck vfio` on a /sys that the test makes; on real controllers it runs in the guest (test/nvme)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import rawduck
from rawduck import pci, render
from rawduck.commands import vfio

ADDRESS = "0000:01:00.0"
FREE = {"path": "/dev/nvme0n1", "in_use": [], "busy": False, "error": None}


class Machine:
    """One NVMe controller with a namespace, and whatever a test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for driver in ("nvme", "vfio-pci", "ahci"):
            self.make(f"sys/bus/pci/drivers/{driver}/bind")
        self.add_function(ADDRESS, "0x010802", "nvme", "7")
        self.make(f"sys/bus/pci/devices/{ADDRESS}/nvme/nvme0/model", "Model X  \n")
        # With several paths the kernel names the controller, too.
        self.make(f"sys/bus/pci/devices/{ADDRESS}/nvme/nvme0/nvme0c0n1/size")
        self.make("sys/block/nvme0n1/nsid", "3\n")
        self.make("dev/nvme0n1")

    def make(self, path: str, text: str = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def add_function(self, address: str, function_class: str, driver: str, group: str) -> None:
        directory = f"sys/bus/pci/devices/{address}"
        self.make(f"{directory}/class", function_class + "\n")
        self.set_driver(address, driver)
        if group:
            (self.root / directory / "iommu_group").symlink_to(self.root / "sys/groups" / group)
            self.make(f"sys/groups/{group}/devices/.made")
            (self.root / "sys/groups" / group / "devices" / address).symlink_to(self.root / directory)

    def add_controller(self, function: str, controller: str, path: str) -> None:
        """Of the same subsystem as the first, with a namespace that the kernel calls `path`."""
        directory = self.root / f"sys/bus/pci/devices/{function}/nvme/{controller}"
        self.make(f"{directory}/{path}/size")
        self.make(f"{directory}/model", "Model X\n")
        for name in ("nvme0", controller):
            link = self.root / "sys/class/nvme-subsystem/nvme-subsys0" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            target = directory if name == controller else directory.parents[2] / ADDRESS / "nvme/nvme0"
            link.symlink_to(target)

    def set_driver(self, address: str, driver: str) -> None:
        link = self.root / f"sys/bus/pci/devices/{address}/driver"
        link.unlink(missing_ok=True)
        link.symlink_to(self.root / f"sys/bus/pci/drivers/{driver}")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(pci, "ROOT", tmp_path)
    monkeypatch.setattr(vfio, "_occupied", lambda: {"/dev/nvme0n1": FREE})
    monkeypatch.setattr(vfio, "_MOMENT_SECONDS", 0.0)
    return Machine(tmp_path)


class Kernel:
    """What is written to a function's files in /sys is done."""

    def __init__(self, machine: Machine, monkeypatch) -> None:
        self.machine = machine
        self.preference = ""
        self.log: list[str] = []
        self.vfio_takes_it = True
        self.at_unbind = lambda: None
        monkeypatch.setattr(pci, "_write", self.write)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(vfio, "_claimed", lambda _: contextlib.nullcontext())
        machine.make("dev/vfio/7")

    def write(self, path: Path, text: str) -> None:
        self.log.append(f"{path.name}={text.strip()}")
        if path.name == "driver_override":
            self.preference = text.strip()
            self.machine.make(f"sys/bus/pci/devices/{ADDRESS}/driver_override", text)
        elif path.name == "unbind":
            (self.machine.root / f"sys/bus/pci/devices/{ADDRESS}/driver").unlink()
            self.at_unbind()
        elif self.preference and not self.vfio_takes_it:
            raise OSError(22, "Invalid argument")
        else:
            self.machine.set_driver(ADDRESS, self.preference or "nvme")


@pytest.fixture
def kernel(machine, monkeypatch):
    return Kernel(machine, monkeypatch)


def driver(address: str = ADDRESS) -> str:
    return pci.Function(address).driver


def listed(capsys) -> dict:
    vfio.list_controllers(json=True)
    (row,) = json.loads(capsys.readouterr().out)
    return row


def refusal(*arguments) -> str:
    with pytest.raises(rawduck.RawduckError) as error:
        vfio.bind(*arguments)
    return str(error.value)


def test_list(machine, capsys):
    machine.add_function("0000:00:1f.2", "0x010601", "ahci", "5")
    assert listed(capsys) == {
        "function": ADDRESS,
        "model": "Model X",
        "driver": "nvme",
        "iommu_group": "7",
        "node": None,
        "owner": None,
        "opened_by": None,
        "namespaces": [{"path": "/dev/nvme0n1", "target": f"vfio:{ADDRESS}n3", "in_use": []}],
        "obstacle": None,
    }
    vfio.list_controllers()
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "function model driver namespaces state",
        f"{ADDRESS} Model X nvme /dev/nvme0n1 may be bound",
    ]


def test_list_of_what_is_bound(machine, capsys):
    machine.set_driver(ADDRESS, "vfio-pci")
    (machine.root / f"sys/bus/pci/devices/{ADDRESS}/nvme").rename(machine.root / "gone")
    node = machine.make("dev/vfio/7")
    row = listed(capsys)
    assert (row["model"], row["driver"], row["namespaces"], row["obstacle"]) == (None, "vfio-pci", [], None)
    assert (row["node"], row["owner"]) == (str(node), render.printable(os.popen("id -un").read().strip()))
    vfio.list_controllers()
    assert "ready" in capsys.readouterr().out


def test_without_an_iommu(machine, capsys):
    (machine.root / f"sys/bus/pci/devices/{ADDRESS}/iommu_group").unlink()
    assert "intel_iommu=on" in listed(capsys)["obstacle"]
    assert f"{ADDRESS}: there is no IOMMU; enable it in the firmware" in refusal(ADDRESS, "", True)


def test_a_group_that_others_share(machine):
    machine.add_function("0000:01:00.1", "0x010601", "ahci", "7")
    assert "cannot keep it apart from 0000:01:00.1 (ahci); move the drive" in refusal(ADDRESS, "", True)


def test_what_is_in_use(machine, monkeypatch, capsys):
    mounted = {**FREE, "in_use": ["it is mounted on /home"], "busy": True}
    monkeypatch.setattr(vfio, "_occupied", lambda: {"/dev/nvme0n1": mounted})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    expected = "/dev/nvme0n1 is in use: it is mounted on /home"
    assert refusal(ADDRESS, "", True) == f"{ADDRESS}: {expected}; it stays with the kernel"
    assert listed(capsys)["obstacle"] == expected


def test_what_nobody_can_look_at(machine, monkeypatch):
    monkeypatch.setattr(vfio, "_occupied", lambda: {"/dev/nvme0n1": {**FREE, "error": "permission denied"}})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "nobody can tell who uses /dev/nvme0n1: permission denied" in refusal(ADDRESS, "", True)


def test_the_boot_drive(machine, monkeypatch):
    machine.make("sys/block/nvme0n1/nvme0n1p1/partition", "1\n")
    machine.make("sys/block/nvme0n1/nvme0n1p1/dev", "259:1\n")
    machine.make("run/udev/data/b259:1", "E:ID_PART_ENTRY_TYPE=c12a7328-f81f-11d2-ba4b-00a0c93ec93b\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "may start from /dev/nvme0n1p1, an EFI system partition" in refusal(ADDRESS, "", True)


def test_consent(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    message = refusal(ADDRESS, "", False)
    assert f"{ADDRESS} (Model X): /dev/nvme0n1. Until `rawduck vfio unbind`" in message
    assert message.endswith("say --yes")


def test_without_the_right_or_the_module(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "drivers are changed by root only" in refusal(ADDRESS, "", True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(vfio.shutil, "which", lambda _: None)
    (machine.root / "sys/bus/pci/drivers/vfio-pci").rename(machine.root / "gone")
    assert "no driver vfio-pci; load it (modprobe vfio-pci)" in refusal(ADDRESS, "", True)


def test_bind_and_unbind(kernel):
    vfio.bind(ADDRESS, "", True)
    assert driver() == "vfio-pci"
    vfio.unbind(ADDRESS)
    assert (driver(), kernel.preference) == ("nvme", "")


def test_a_hand_over_that_fails(kernel):
    kernel.vfio_takes_it = False
    assert "vfio-pci does not take it ([Errno 22] Invalid argument), so it has the driver nvme" in refusal(
        ADDRESS, "", True
    )
    assert (driver(), kernel.preference) == ("nvme", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_come_after_a_hand_over(kernel, number):
    """Otherwise the controller would have no driver."""
    came = []
    before = signal.signal(number, lambda *_: came.append(driver()))
    kernel.at_unbind = lambda: os.kill(os.getpid(), number)
    try:
        vfio.bind(ADDRESS, "", True)
    finally:
        signal.signal(number, before)
    assert came == ["vfio-pci"]


def test_after_an_interrupted_hand_over(kernel, machine, monkeypatch):
    """It is killed between two drivers, or before the first step."""
    kernel.write(Path("driver_override"), "vfio-pci")
    vfio.unbind(ADDRESS)
    assert (driver(), kernel.preference) == ("nvme", "")
    kernel.write(Path("driver_override"), "vfio-pci")
    kernel.write(Path("unbind"), ADDRESS)
    mounted = {**FREE, "in_use": ["it is mounted on /home"], "busy": True}
    with monkeypatch.context() as patch:
        patch.setattr(vfio, "_occupied", lambda: {"/dev/nvme0n1": mounted})
        assert "mounted on /home" in refusal(ADDRESS, "", True), "the kernel is asked who uses it"
    assert driver() == "nvme"
    kernel.write(Path("unbind"), ADDRESS)
    vfio.bind(ADDRESS, "", True)
    assert driver() == "vfio-pci"


def test_what_another_driver_has(kernel, machine, capsys):
    machine.make("sys/bus/pci/drivers/uio_pci_generic/bind")
    machine.set_driver(ADDRESS, "uio_pci_generic")
    expected = "it has the driver uio_pci_generic, and nobody can tell who uses it there"
    assert expected in listed(capsys)["obstacle"]
    assert expected in refusal(ADDRESS, "", True)
    with pytest.raises(rawduck.RawduckError, match=expected):
        vfio.unbind(ADDRESS)
    assert (driver(), kernel.log) == ("uio_pci_generic", [])


def test_what_a_virtual_machine_has(kernel, machine, monkeypatch):
    machine.set_driver(ADDRESS, "vfio-pci")
    monkeypatch.setattr(pci, "openers", lambda nodes: iter([(nodes[0], "process 7 (qemu)")]))
    assert "process 7 (qemu) drives it" in refusal(ADDRESS, "nobody", True)
    vfio.bind(ADDRESS, "root", True)  # whose it is already


def test_a_namespace_with_several_paths(kernel, machine, capsys):
    machine.add_function("0000:02:00.0", "0x010802", "nvme", "8")
    machine.add_controller("0000:02:00.0", "nvme1", "nvme0c1n1")
    expected = "the kernel reaches its namespace nvme0n1 through the controller"
    vfio.list_controllers(json=True)
    first, second = json.loads(capsys.readouterr().out)
    assert f"{expected} nvme1, too" in first["obstacle"]
    assert f"{expected} nvme0, too" in second["obstacle"]
    assert f"{expected} nvme1, too" in refusal(ADDRESS, "", True)
    assert (driver(), kernel.log) == ("nvme", [])


def test_paths_that_are_devices_of_their_own(kernel, machine):
    """As without the kernel's multipathing."""
    machine.add_function("0000:02:00.0", "0x010802", "nvme", "8")
    machine.add_controller("0000:02:00.0", "nvme1", "nvme1n1")
    machine.make("sys/block/nvme1n1/wwid", "eui.2\n")
    machine.make("sys/block/nvme0n1/wwid", "eui.1\n")
    vfio.bind(ADDRESS, "", True)
    vfio.unbind(ADDRESS)
    machine.make("sys/block/nvme1n1/wwid", "eui.1\n")
    assert "reaches its namespace eui.1 through the controller nvme1, too" in refusal(ADDRESS, "", True)


MAP_AND_CLOSE = """
import ctypes, mmap, os, sys
descriptor = os.open("/dev/zero", os.O_RDONLY)
map_memory = ctypes.CDLL(None).mmap
map_memory.restype = ctypes.c_void_p
map_memory(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, ctypes.c_long(0))
os.close(descriptor)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what other processes have mapped")
def test_processes_that_have_a_device_in_their_memory():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", MAP_AND_CLOSE], **pipes) as process:
        assert process.stdout.readline() == b"mapped\n"
        found = [name for _, name in pci.openers([Path("/dev/zero")])]
        process.stdin.close()
    assert any(name.startswith(f"process {process.pid} ") for name in found), found


def test_names(machine):
    machine.add_function("10000:e1:00.0", "0x010802", "nvme", "9")
    for name in ("10000:e1:00.0", "vfio:10000:e1:00.0n1"):
        assert pci.find(name).address == "10000:e1:00.0"
    for name in (ADDRESS, f"vfio:{ADDRESS}n3", f"nvme://vfio:{ADDRESS}n3", str(machine.root / "dev/nvme0n1")):
        assert pci.find(name).address == ADDRESS
    machine.add_function("0000:00:1f.2", "0x010601", "ahci", "5")
    for name, words in {
        "0000:02:00.0": "no PCI function 0000:02:00.0",
        "0000:00:1f.2": "is no NVMe controller",
        "/dev/sda": "neither a PCI function",
    }.items():
        with pytest.raises(rawduck.RawduckError, match=words):
            pci.find(name)
