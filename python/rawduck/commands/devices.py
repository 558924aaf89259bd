"""`rawduck devices`."""

from __future__ import annotations

import typer
from rich.markup import escape

import rawduck
from rawduck import render
from rawduck.commands.options import Json


def register(app: typer.Typer) -> None:
    app.command("devices", epilog="Example: rawduck devices --json")(list_devices)


def list_devices(json: Json = False) -> None:
    """List block devices: geometry, write cache, and what already lies on them."""
    with rawduck.connect() as connection:
        found = render.rows(connection, "SELECT * FROM nvme_devices()")
    if json:
        render.print_json(found)
        return
    if not found:
        render.console.print("No block device found.")
        return
    table = render.table(
        "device", "model", ">capacity", ">LBA", ">alignment", ">max transfer", "write cache", "FDP", "state"
    )
    for device in found:
        table.add_row(
            device["path"],
            escape(device["model"] or "-"),
            render.size(device["capacity"]),
            str(device["lba_size"] or "-"),
            str(device["memory_alignment"] or "-"),
            render.size(device["max_transfer"]) if device["max_transfer"] else "-",
            "volatile" if device["volatile_write_cache"] else "none",
            "yes" if device["nvme"] and device["nvme"]["fdp"] else "-",
            _state(device),
        )
    render.console.print(table)


def _state(device: render.Row) -> str:
    if device["error"]:
        return f"[red]{escape(device['error'])}[/]"
    if device["in_use"]:
        return f"[yellow]{escape('; '.join(device['in_use']))}[/]"
    return "read-only" if device["read_only"] else "[green]free[/]"
