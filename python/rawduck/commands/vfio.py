"""`rawduck vfio list`, `bind` and `unbind`: NVMe controllers for engine vfio, and back to the kernel."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

import rawduck
from rawduck import consent, paths, pci, render
from rawduck.commands.options import Json
from rawduck.errors import RawduckError

app = typer.Typer(
    help="NVMe controllers for engine vfio: hand them over, and give them back to the kernel.",
    no_args_is_help=True,
)

Controller = Annotated[
    str,
    typer.Argument(
        metavar="CONTROLLER",
        help="A PCI function (0000:01:00.0), a target on it, or a node of the kernel's (/dev/nvme0n1).",
        show_default=False,
    ),
]
_MOMENT_SECONDS = 1.0
_NO_IOMMU = (
    "there is no IOMMU; enable it in the firmware (VT-d, AMD-Vi) and with the kernel parameter "
    "intel_iommu=on (on AMD it is on by default)"
)


def register(parent: typer.Typer) -> None:
    app.command("list", epilog="Example: rawduck vfio list --json")(list_controllers)
    app.command("bind", epilog="Example: rawduck vfio bind 0000:01:00.0 --user $USER")(bind)
    app.command("unbind", epilog="Example: rawduck vfio unbind 0000:01:00.0")(unbind)
    parent.add_typer(app, name="vfio")


def list_controllers(json: Json = False) -> None:
    """List NVMe controllers: their driver, namespaces, and why they cannot be handed over."""
    occupied = _occupied()
    found = [_describe(function, occupied) for function in pci.functions()]
    if json:
        render.print_json(found)
        return
    if not found:
        render.console.print("No NVMe controller found.")
        return
    table = render.table("function", "model", "driver", "namespaces", "state")
    for row in found:
        names = ", ".join(namespace["path"] for namespace in row["namespaces"]) or "-"
        model, driver = render.text(row["model"] or "-"), row["driver"] or "-"
        table.add_row(row["function"], model, driver, names, _state(row))
    render.console.print(table)


def bind(
    controller: Controller,
    user: Annotated[str, typer.Option(help="Who may open it then, besides root.", show_default=False)] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Take a controller from the kernel's driver. Refuses one that is in use, and says by whom."""
    function = pci.find(controller)
    owner = _user_id(user)
    if function.driver != pci.VFIO_DRIVER:
        _require_possible(function)
        if not function.driver:
            # As after a hand-over that was interrupted. Nobody can tell who uses it before the kernel looks.
            _give_to_kernel(function)
            _require_possible(function)
        _refuse_used(function, _use_of(function, _occupied()))
        _require_consent(function, yes)
        with _claimed(function):
            _refuse_used(function, _openers_of(function))
            function.hand_to(pci.VFIO_DRIVER)
    if not pci.wait_for(function.group_node.exists):
        raise RawduckError(f"{function.address}: {function.group_node} does not appear; look into dmesg")
    if user and function.group_node.stat().st_uid != owner:
        _refuse_driven(function)
        os.chown(function.group_node, owner, -1)
    _print(function, json, f"has the driver vfio-pci. Its targets are vfio:{function.address}n1 and so on")


def unbind(controller: Controller, json: Json = False) -> None:
    """Give a controller back to the kernel's driver, so that its nodes in /dev appear again."""
    function = pci.find(controller)
    if function.driver == pci.VFIO_DRIVER:
        _refuse_driven(function)
    if problem := _foreign_driver(function):
        raise RawduckError(f"{function.address}: {problem}")
    if function.driver != pci.KERNEL_DRIVER:
        _give_to_kernel(function)
    elif os.geteuid() == 0:
        function.forget_preference()
    names = ", ".join(f"/dev/{name}" for name in function.namespaces())
    _print(function, json, f"has the kernel's driver again{': ' + names if names else ''}")


def _give_to_kernel(function: pci.Function) -> None:
    _require_driver(function, pci.KERNEL_DRIVER)
    function.hand_to(pci.KERNEL_DRIVER)
    pci.wait_for(lambda: all((pci.ROOT / "dev" / name).exists() for name in function.namespaces() or ["-"]))
    seen: list[str] = []
    while (found := function.namespaces()) != seen:  # they come one by one
        seen = found
        time.sleep(_MOMENT_SECONDS)


def _refuse_driven(function: pci.Function) -> None:
    for node, process in pci.openers([function.group_node]):
        raise RawduckError(f"{function.address}: {process} drives it ({node}); close it there first")


def _print(function: pci.Function, json: bool, text: str) -> None:
    if json:
        render.print_json(_describe(function, _occupied()))
    else:
        render.console.print(f"{function.address} {render.text(text)}", soft_wrap=True)


def _occupied() -> dict[str, render.Row]:
    """Rows of nvme_devices() by path."""
    with rawduck.connect() as connection:
        return {row["path"]: row for row in render.rows(connection, "SELECT * FROM nvme_devices()")}


def _describe(function: pci.Function, occupied: dict[str, render.Row]) -> render.Row:
    """`namespaces` and `model` are known while the kernel has it. `obstacle`: against bind; null: none."""
    node = function.group_node
    has_node = function.driver == pci.VFIO_DRIVER and node.exists()
    namespaces = []
    for name in function.namespaces():
        row = occupied.get(f"/dev/{name}", {})
        number = int((pci.block(name) / "nsid").read_text())
        target = f"{paths.VFIO_PREFIX}{function.address}n{number}"
        namespaces.append({"path": f"/dev/{name}", "target": target, "in_use": row.get("in_use") or []})
    opened = [process for _, process in pci.openers([node])] if has_node else []
    obstacle = _obstacle(function)
    if not obstacle and function.driver != pci.VFIO_DRIVER:
        obstacle = _use_of(function, occupied)
    return {
        "function": function.address,
        "model": function.model() or None,
        "driver": function.driver or None,
        "iommu_group": function.iommu_group or None,
        "node": str(node) if has_node else None,
        "owner": _user_name(node.stat().st_uid) if has_node else None,
        "opened_by": opened[0] if opened else None,
        "namespaces": namespaces,
        "obstacle": obstacle or None,
    }


def _state(row: render.Row) -> str:
    if row["obstacle"]:
        return f"[yellow]{render.text(row['obstacle'])}[/]"
    if row["node"]:
        use = f"driven by {row['opened_by']}" if row["opened_by"] else "ready"
        return f"[green]{render.text(use)}[/]: {row['node']} of {row['owner']}"
    return "may be bound"


def _obstacle(function: pci.Function) -> str:
    """A clause that says why VFIO cannot have it, whoever uses it; empty: it can."""
    if problem := _foreign_driver(function):
        return problem
    for sibling, name in function.siblings():
        return (
            f"the kernel reaches its namespace {name} through the controller {sibling}, too, and would go on "
            "to use it there; a namespace with several paths stays with the kernel"
        )
    if not function.iommu_group:
        return _NO_IOMMU
    if others := function.others_in_group():
        return f"the IOMMU cannot keep it apart from {', '.join(others)}; move the drive to another slot"
    return ""


def _foreign_driver(function: pci.Function) -> str:
    """A clause about a driver whose users nobody can tell; empty: it is a known one, or none."""
    driver = function.driver
    if driver in ("", pci.KERNEL_DRIVER, pci.VFIO_DRIVER):
        return ""
    return (
        f"it has the driver {driver}, and nobody can tell who uses it there; give it back to the driver "
        f"{pci.KERNEL_DRIVER} with the program that took it"
    )


def _use_of(function: pci.Function, occupied: dict[str, render.Row]) -> str:
    """A clause that says who uses it now, or that the machine starts from it; empty: nobody."""
    for name in function.namespaces():
        row = occupied.get(f"/dev/{name}")
        if row is None or row["error"]:
            reason = row["error"] if row else "it has no size"
            return f"nobody can tell who uses /dev/{name}: {reason}"
        if row["busy"]:
            return f"/dev/{name} is in use: {'; '.join(row['in_use'])}"
        if partition := pci.boot_partition(name):
            return f"this machine may start from {partition}, an EFI system partition"
    return _openers_of(function)


def _openers_of(function: pci.Function) -> str:
    """The same of processes. Some look at a drive for a moment, such as udev after a change."""
    problem = ""

    def is_free() -> bool:
        nonlocal problem
        problem = ""
        for node, process in pci.openers(function.nodes()):
            problem = f"{process} has {node} open"
        for node in pci.locked(function.nodes()):
            problem = problem or f"{node} is locked by a process that cannot be seen from here"
        return not problem

    pci.wait_for(is_free, _MOMENT_SECONDS)
    return problem


def _refuse_used(function: pci.Function, problem: str) -> None:
    if problem:
        raise RawduckError(f"{function.address}: {problem}; it stays with the kernel")


def _require_possible(function: pci.Function) -> None:
    if problem := _obstacle(function):
        raise RawduckError(f"{function.address}: {problem}")
    if os.geteuid() != 0:
        raise RawduckError(f"{function.address}: drivers are changed by root only (sudo rawduck ...)")
    _require_driver(function, pci.VFIO_DRIVER)


def _require_driver(function: pci.Function, driver: str) -> None:
    """Loads it where it is not there."""
    if not pci.driver_is_there(driver) and shutil.which("modprobe"):
        subprocess.run(["modprobe", driver], check=False, capture_output=True)
    if not pci.driver_is_there(driver):
        raise RawduckError(
            f"{function.address}: this kernel has no driver {driver}; load it (modprobe {driver}), or "
            "install the package with the kernel's further modules"
        )


@contextlib.contextmanager
def _claimed(function: pci.Function) -> Iterator[None]:
    """Nobody can mount its namespaces meanwhile, or claim them in another way."""
    with contextlib.ExitStack() as claims:
        for name in function.namespaces():
            path = f"/dev/{name}"
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno == errno.EBUSY:
                    _refuse_used(function, f"{path} has just come into use")
                raise
            claims.callback(os.close, descriptor)
        yield


def _require_consent(function: pci.Function, yes: bool) -> None:
    if yes:
        return
    names = ", ".join(f"/dev/{name}" for name in function.namespaces()) or "no namespace"
    what = f"{function.address}{' (' + function.model() + ')' if function.model() else ''}: {names}"
    if not sys.stdin.isatty():
        raise RawduckError(f"{what}. Until `rawduck vfio unbind` their nodes are gone; to do it, say --yes")
    until = "Until `rawduck vfio unbind` their nodes are gone."
    render.console.print(f"{render.text(what)}. {until}", soft_wrap=True)
    if not consent.answer(typer.confirm, "Take it from the kernel?"):
        raise RawduckError(f"{function.address}: left as it is")


def _user_id(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid if name else 0
    except KeyError:
        raise RawduckError(f"--user {name}: there is no such user") from None


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
