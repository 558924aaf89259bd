"""`rawduck devices`."""

from __future__ import annotations

import typer

import rawduck
from rawduck import render
from rawduck.commands.options import Csv, Json

_WIDTH_WITH_DETAILS = 120


def register(app: typer.Typer) -> None:
    app.command("devices", epilog="Example: rawduck devices --json")(list_devices)


def list_devices(json: Json = False, csv: Csv = False) -> None:
    """List block devices: geometry, write cache, and what already lies on them."""
    with rawduck.connect() as connection:
        found = render.rows(connection, "SELECT * FROM nvme_devices()")
    if render.print_for_scripts(found, json, csv):
        return
    if not found:
        render.console.print("No block device found.")
        return
    # What has no room beside the rest would be cut into columns of single words.
    details = render.console.width >= _WIDTH_WITH_DETAILS
    names = [">LBA", ">alignment", ">max transfer", "write cache", "FDP"] if details else []
    table = render.table("device", "model", ">capacity", *names, "state")
    for device in found:
        table.add_row(
            device["path"],
            render.text(device["model"] or "-"),
            render.size(device["capacity"]),
            *(_details(device) if details else []),
            _state(device),
        )
    render.console.print(table)
    if not details:
        render.console.print("--json, or a wider terminal, shows more.", style="dim")


def _details(device: render.Row) -> list[str]:
    return [
        str(device["lba_size"] or "-"),
        str(device["memory_alignment"] or "-"),
        render.size(device["max_transfer"]) if device["max_transfer"] else "-",
        "volatile" if device["volatile_write_cache"] else "none",
        "yes" if device["nvme"] and device["nvme"]["fdp"] else "-",
    ]


def _state(device: render.Row) -> str:
    if device["error"]:
        return f"[red]{render.text(device['error'])}[/]"
    if device["in_use"]:
        return f"[yellow]{render.text('; '.join(device['in_use']))}[/]"
    return "read-only" if device["read_only"] else "[green]free[/]"
