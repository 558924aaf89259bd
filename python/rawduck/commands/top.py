"""`rawduck top`: what a volume is doing, in whatever process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Annotated

import duckdb
import typer
from rich.live import Live
from rich.table import Table

import rawduck
from rawduck import paths, render, volumes
from rawduck.commands.options import Json, Target

OPERATIONS = ("read", "write", "flush", "deallocate")
_MICROSECONDS = "µs"
_INTERVAL_MAX = 86400
_NOTHING: render.Row = {
    "commands": 0,
    "bytes": 0,
    "errors": 0,
    "depth_mean": 0.0,
    "bytes_by_class": None,
    "latencies": {},
}


def register(app: typer.Typer) -> None:
    app.command("top", epilog="Example: rawduck top /dev/nvme1n1 --interval 0.5")(top)


def top(
    target: Target,
    interval: Annotated[
        float, typer.Option(min=0.05, max=_INTERVAL_MAX, help="Seconds between two looks.")
    ] = 1.0,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="How often to look; 0: until Ctrl-C.")
    ] = 0,
    json: Json = False,
) -> None:
    """Show what a volume is doing: commands, bytes, depth and latency, in the process that writes to it.

    All of it is since the look before. Bytes are told by class, too: database (and other files), metadata,
    wal, temporary. Where no process has the volume open for writing, there is nothing to show of it. With
    --json, or where output is no terminal, each look is printed below the one before.
    """
    target = paths.absolute_target(target)
    with rawduck.connect() as connection:
        looks = _looks(connection, target, interval, count)
        if json:
            for look in looks:
                render.print_json_line(look)
        elif render.console.is_terminal:
            with Live(console=render.console, auto_refresh=False) as live:
                for look in looks:
                    live.update(_table(look), refresh=True)
        else:
            for look in looks:
                render.console.print(_table(look))


def _looks(
    connection: duckdb.DuckDBPyConnection, target: str, interval: float, count: int
) -> Iterator[render.Row]:
    """What has happened in each interval. The volume is not kept mounted between two looks."""
    before, then = _counters(connection, target), time.monotonic()
    #: What each process had counted when it was looked at last; it goes on where it has left.
    seen = {_writer(before): before}
    done = 0
    while (count == 0 or done < count) and render.somebody_reads():
        time.sleep(interval)
        now = _counters(connection, target)
        writer = _writer(now)
        before = seen.get(writer, now) if writer else now
        elapsed, then = time.monotonic() - then, time.monotonic()
        space = volumes.volume_info(connection, target)
        yield {
            "target": target,
            "process": writer,
            "seconds": round(elapsed, 3),
            "used": space["used"],
            "free": space["free"],
            "files": space["files"],
            "open_handles": space["open_handles"],
            "operations": [
                {"operation": name, **rates(before[name], now[name], elapsed)} for name in OPERATIONS
            ],
        }
        seen[writer] = now
        done += 1


def _counters(connection: duckdb.DuckDBPyConnection, target: str) -> dict[str, render.Row]:
    found = render.rows(connection, "SELECT * FROM nvme_stats(target := ?)", [target])
    return {row["operation"]: row for row in found}


def _writer(counters: dict[str, render.Row]) -> int | None:
    """The process that has the volume open for writing; what this one does is only to look."""
    process = counters[OPERATIONS[0]]["process"]
    return None if process == os.getpid() else process


def rates(before: render.Row, now: render.Row, seconds: float) -> render.Row:
    """Per second of what was counted between two looks; everything, when the counters have begun anew."""
    if now["commands"] < before["commands"]:
        before = {**before, **_NOTHING}
    commands = now["commands"] - before["commands"]
    depth = now["depth_mean"] * now["commands"] - before["depth_mean"] * before["commands"]
    classes = _difference(before["bytes_by_class"], now["bytes_by_class"])
    latencies = _difference(before["latencies"], now["latencies"])
    return {
        "commands_per_s": commands / seconds,
        "bytes_per_s": (now["bytes"] - before["bytes"]) / seconds,
        "errors": now["errors"] - before["errors"],
        "depth": depth / commands if commands else 0.0,
        "latency_p50_us": quantile(latencies, 0.5),
        "latency_p99_us": quantile(latencies, 0.99),
        "bytes_by_class_per_s": {name: count / seconds for name, count in classes.items()},
    }


def _difference(before: dict | None, now: dict | None) -> dict:
    return {key: count - (before or {}).get(key, 0) for key, count in (now or {}).items()}


def quantile(counts: dict[float, int], share: float) -> float:
    """The smallest bound that at least this share of what was counted does not exceed; 0 of nothing."""
    wanted = share * sum(counts.values())
    seen = 0
    for bound, count in sorted(counts.items()):
        seen += count
        if count > 0 and seen >= wanted:
            return bound
    return 0.0


def _table(look: render.Row) -> Table:
    space = (
        f"{render.text(look['target'])}: {render.size(look['used'])} used, {render.size(look['free'])} free, "
        f"{look['files']} files"
    )
    writer = f"{look['open_handles']} open in process {look['process']}"
    title = f"{space}, {writer if look['process'] else 'no writer'}"
    table = render.table(
        "", ">commands/s", ">bytes/s", ">depth", f">p50 {_MICROSECONDS}", f">p99 {_MICROSECONDS}", ">errors",
        title=title,
    )  # fmt: skip
    for row in look["operations"]:
        table.add_row(
            row["operation"],
            f"{row['commands_per_s']:,.0f}",
            render.size(row["bytes_per_s"]),
            f"{row['depth']:.1f}",
            f"{row['latency_p50_us']:,.0f}",
            f"{row['latency_p99_us']:,.0f}",
            str(row["errors"]),
        )
        for name, rate in row["bytes_by_class_per_s"].items():
            if rate > 0:
                table.add_row(f"  {name}", "", render.size(rate), "", "", "", "")
    return table
