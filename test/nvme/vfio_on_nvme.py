"""A controller that is handed from the kernel's driver to rawduck's own, and back: by the command line, with
SQL in between that the kernel's driver then reads. What goes wrong meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import mmap
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bench_of_driver
import faults_on_nvme
import fdp_on_nvme
import kills_on_nvme
import rawduck
import xnvme_on_nvme
from faults_on_nvme import attach_new, check_message, failure
from rawduck import pci
from rawduck.commands import vfio


def printed(command: Callable, *arguments) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        command(*arguments)
    return text.getvalue()


def bind(function: str) -> dict:
    return json.loads(printed(vfio.bind, function, "", True, True))


def unbind(function: str) -> dict:
    return json.loads(printed(vfio.unbind, function, True))


def listed(function: str) -> dict:
    (row,) = (row for row in json.loads(printed(vfio.list_controllers, True)) if row["function"] == function)
    return row


def refusal(*arguments) -> str:
    return refusal_of(vfio.bind, *arguments)


def refusal_of(command: Callable, *arguments) -> str:
    try:
        command(*arguments)
    except rawduck.RawduckError as error:
        return str(error)
    raise AssertionError(f"{command.__name__}{arguments} did not fail")


@contextlib.contextmanager
def bound(function: str) -> Iterator[str]:
    """Its first namespace as a target."""
    bind(function)
    try:
        yield f"vfio:{function}n1"
    finally:
        unbind(function)


def check_all(results, plan: dict, tpch: Callable) -> None:
    """By default, what protects data and what needs a real function most: the rest costs two minutes more."""
    results.check("vfio: what is in use stays with the kernel", lambda: refusals(plan["plain"]))
    with bound(plan["slow"]) as slow, bound(plan["fdp"]) as target:
        xnvme_on_nvme.check_all(results, plan, slow, lambda *rest: tpch(results, plan["data"], target, *rest))
    with bound(plan["fdp"]) as target:
        tpch(results, plan["data"], target, ["auto"], plan["modes"])
    results.check("vfio: the device is removed", lambda: removed(plan["plain"], plan["other"]))
    if plan["everything"]:
        check_the_rest(results, plan)


def check_the_rest(results, plan: dict) -> None:
    """After `tpch`, whose volume is looked at first."""
    other, fdp = plan["other"], plan["fdp"]
    results.check("vfio: the kernel's driver reads what was written", lambda: read_by_the_kernel(fdp))
    results.check("vfio: a controller goes there and back", lambda: there_and_back(fdp))
    results.check("vfio: placement, as nvme-cli sees it", lambda: placement(fdp))
    with bound(fdp) as target:
        bench_of_driver.check_all(results.check, target, plan["stock"], plan["bench"])
    with bound(plan["bad"]) as target:
        words = {"read": "unrecovered read error: media error", "write": "write fault"}
        results.check("vfio: media errors", lambda: faults_on_nvme.media_errors(target, "auto", other, words))
    with bound(plan["slow"]) as target:
        results.check("vfio: writers are killed", lambda: kills_on_nvme.kills(target, plan["kills"]))


def refusals(function: str) -> None:
    path = listed(function)["namespaces"][0]["path"]
    subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    place = Path("/tmp/mounted")
    place.mkdir()
    subprocess.run(["mount", path, place], check=True)
    try:
        assert f"{path} is in use: it is mounted on {place}" in refusal(path, "", True)
        assert "is mounted on" in listed(function)["obstacle"]
    finally:
        subprocess.run(["umount", place], check=True)
    generic = path.replace("nvme", "ng", 1)
    with open(generic, "rb") as opened:
        holder = subprocess.Popen(["sleep", "1000"], stdin=opened)
    try:
        assert f"process {holder.pid} (sleep) has {generic} open" in refusal(generic, "", True)
    finally:
        holder.kill()
        holder.wait()
    with mapped(path) as process:
        assert f"process {process} " in refusal(path, "", True)
    with exported(path):
        assert "which the kernel's NVMe target hands to other machines" in refusal(path, "", True)
    controller = pci.Function(function).controllers()[0]
    with passed_on(f"/dev/{controller}"):
        expected = "its controller is passed-on, which the kernel's NVMe target hands to other machines"
        assert expected in refusal(path, "", True)
        assert expected in refusal_of_format(path)
    with rawduck.connect() as connection:
        attach_new(connection, generic, "x")
        message = refusal(function, "", True)
        assert path in message or generic in message, message
        connection.execute("CREATE TABLE x.t AS SELECT 1 AS v; CHECKPOINT x")
    assert "--yes" in refusal(function)
    assert "no such user" in refusal(function, "nobody-of-this-name", True)
    assert "no PCI function" in refusal("ffff:00:00.0", "", True)
    assert pci.Function(function).driver == pci.KERNEL_DRIVER


@contextlib.contextmanager
def mapped(path: str) -> Iterator[int]:
    """A process that has it in its memory, and no descriptor of it any more."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        descriptor = os.open(path, os.O_RDONLY)
        map_memory = ctypes.CDLL(None, use_errno=True).mmap
        map_memory.restype = ctypes.c_void_p
        length, nothing = ctypes.c_size_t(mmap.PAGESIZE), ctypes.c_long(0)
        place = map_memory(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, nothing)
        os.close(descriptor)
        os.write(tells, b"1" if place != ctypes.c_void_p(-1).value else b"0")
        time.sleep(1000)
        os._exit(1)
    try:
        assert os.read(told, 1) == b"1"
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tells)


@contextlib.contextmanager
def exported(path: str) -> Iterator[None]:
    """By the kernel's NVMe target."""
    subsystem = Path("/sys/kernel/config/nvmet/subsystems/handed-out")
    namespace = subsystem / "namespaces/1"
    subsystem.mkdir()
    namespace.mkdir()
    (namespace / "device_path").write_text(path)
    (namespace / "enable").write_text("1")
    try:
        yield
    finally:
        (namespace / "enable").write_text("0")
        namespace.rmdir()
        subsystem.rmdir()


@contextlib.contextmanager
def passed_on(path: str) -> Iterator[None]:
    """By the same, a controller as it is."""
    subsystem = Path("/sys/kernel/config/nvmet/subsystems/passed-on")
    subsystem.mkdir()
    (subsystem / "passthru/device_path").write_text(path)
    (subsystem / "passthru/enable").write_text("1")
    try:
        yield
    finally:
        (subsystem / "passthru/enable").write_text("0")
        subsystem.rmdir()


def refusal_of_format(path: str) -> str:
    with rawduck.connect() as connection:
        return failure(connection, f"CALL nvme_format('{path}', force := true)")


def there_and_back(function: str) -> None:
    before = listed(function)
    assert (before["driver"], before["obstacle"]) == ("nvme", None), before
    row = bind(before["namespaces"][0]["target"])
    assert (row["driver"], row["owner"], row["namespaces"]) == ("vfio-pci", "root", []), row
    assert bind(function) == row, "again is no error"
    assert json.loads(printed(vfio.bind, function, "nobody", True, True))["owner"] == "nobody"
    assert "ready" in printed(vfio.list_controllers)
    target = f"vfio:{function}n1"
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), rawduck.connect() as connection:
            attach_new(connection, target, "x")
            os.write(tells, b"1")  # not before: between formatting and attaching nobody has it open
            time.sleep(1000)
        os._exit(1)
    os.close(tells)
    try:
        assert os.read(told, 1) == b"1", "the child could not attach it"
        assert opens(function, child), listed(function)
        assert f"process {child}" in refusal_of(unbind, function)
    finally:
        os.close(told)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    after = unbind(function)
    assert after["driver"] == "nvme"
    assert [row["target"] for row in after["namespaces"]] == [target]
    assert os.path.exists(after["namespaces"][0]["path"])


def opens(function: str, process: int) -> bool:
    node = pci.Function(function).group_node
    return any(f"process {process} " in name for _, name in pci.openers([node]))


def read_by_the_kernel(function: str) -> None:
    """What tpch has left on the volume, and something more by the kernel's driver, which vfio reads then."""
    path = listed(function)["namespaces"][0]["path"]
    query = "SELECT count(*), sum(hash(COLUMNS(*)::VARCHAR)) FROM x.customer"
    with rawduck.connect() as connection:
        connection.execute("SET nvme_engine = 'io_uring'; SET nvme_placement = 'off'")
        connection.execute(f"ATTACH 'nvme://{path}/auto_thread.duckdb' AS x")
        expected = connection.execute(query).fetchall()
        connection.execute("CREATE TABLE x.more AS SELECT range AS v FROM range(100000)")
        connection.execute("DETACH x")
        findings = connection.execute("FROM nvme_check(?) WHERE severity <> 'ok'", [path]).fetchall()
        assert findings == [], findings
    with bound(function) as target, rawduck.connect() as connection:
        connection.execute(f"ATTACH 'nvme://{target}/auto_thread.duckdb' AS x")
        assert connection.execute(query).fetchall() == expected
        assert connection.execute("SELECT sum(v) FROM x.more").fetchone()[0] == 4999950000


def placement(function: str) -> None:
    """What is written through each identifier, as the device says afterwards."""
    generic = listed(function)["namespaces"][0]["path"].replace("nvme", "ng", 1)
    before = fdp_on_nvme.Witness.ask(generic)
    with bound(function) as target, fdp_on_nvme.connect("auto") as connection:
        connection.execute("CALL nvme_format(?, force := true)", [target])
        connection.execute("CALL nvme_reset_stats()")
        connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
        connection.execute("CREATE TABLE x.t AS SELECT range AS v, hash(range) AS h FROM range(200000)")
        row = connection.execute("SELECT placement FROM nvme_volumes()").fetchone()
        assert row == ("database=0, metadata=1, wal=1, temporary=2",), row
        connection.execute(f"SET temp_directory = 'nvme://{target}/tmp'")
        connection.execute(fdp_on_nvme.SPILL)
    written = fdp_on_nvme.Witness.ask(generic).written_since(before)
    assert written[0] > 1_500_000, written
    assert written[1] > 0, written
    assert written[2] > 8_000_000, written


def removed(function: str, other: str) -> None:
    """The machine takes the device out of its bus, as before it is pulled."""
    with (
        bound_until_removed(function) as target,
        faults_on_nvme.connect("auto") as connection,
        faults_on_nvme.connect("auto") as others,
    ):
        bystander = faults_on_nvme.Bystander(others, other)
        attach_new(connection, target, "x")
        connection.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(800000)")
        connection.execute("CHECKPOINT x; DETACH x")
        connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
        removal = threading.Thread(
            target=lambda: Path(f"/sys/bus/pci/devices/{function}/remove").write_text("1")
        )
        removal.start()
        removal.join(20)
        assert not removal.is_alive(), "the kernel waits for the driver"
        check_message(failure(connection, "SELECT sum(v) FROM x.t"), target, "read", "wants the device back")
        message = failure(connection, "INSERT INTO x.t VALUES (1)")
        assert target in message, message
        bystander.lives()


@contextlib.contextmanager
def bound_until_removed(function: str) -> Iterator[str]:
    bind(function)
    try:
        yield f"vfio:{function}n1"
    finally:
        Path("/sys/bus/pci/rescan").write_text("1")
    assert pci.wait_for(lambda: pci.Function(function).driver == pci.KERNEL_DRIVER)
