"""`rawduck send` and `receive`: snapshots as streams, for backups and copies elsewhere (docs/BACKUP.md)."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import duckdb
import typer

import rawduck
from rawduck import paths, render
from rawduck.commands.options import Json
from rawduck.commands.progress import progress_bar, run_shown

_STDIN, _STDOUT = "fd:0", "fd:1"


def register(app: typer.Typer) -> None:
    send_example = "rawduck send nvme:///dev/nvme0n1/sales.duckdb@tuesday --since monday -o /backup/tuesday"
    receive_example = "rawduck receive nvme:///dev/nvme1n1/sales.duckdb -i /backup/tuesday"
    app.command("send", epilog=f"Example: {send_example}")(send)
    app.command("receive", epilog=f"Example: {receive_example}")(receive)


def send(
    path: Annotated[
        str, typer.Argument(metavar="PATH@NAME", help="nvme://<target>/<file>@<snapshot>, or @latest.")
    ],
    since: Annotated[
        str, typer.Option(help="Send only what differs from this snapshot of the same file.")
    ] = "",
    resume: Annotated[
        str, typer.Option(metavar="TOKEN", help="Go on where `rawduck receive --token` says.")
    ] = "",
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="A new file, or rados://<pool>/<name>; otherwise standard output.",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Write a snapshot of a file, of a database with its log, as a stream, while others write to it."""
    _require_volume_path(path)
    output = "" if output == "-" else output
    if not output and sys.stdout.isatty():
        raise rawduck.RawduckError(
            "a stream is not for a terminal: pipe it to `rawduck receive`, or give --output FILE"
        )
    if json and not output:
        raise rawduck.RawduckError(
            "--json goes to standard output, and so does the stream: give --output FILE"
        )
    stream = _stream(output, _STDOUT)
    query = "SELECT * FROM nvme_send(?, ?, since := ?, resume := ?)"
    start = time.perf_counter()
    # Of two commands at one terminal, the one that receives draws.
    with _connect(stream) as connection, progress_bar(shown=bool(output), sizes=False) as progress:
        task = progress.add_task(render.printable(path.rpartition("/")[2]), total=100)
        row = run_shown(
            connection,
            query,
            [path, stream, since or None, resume or None],
            lambda percent: progress.update(task, completed=percent),
        )
    if json:
        render.print_json(row)
    elif output:
        _print_done("Sent", row, f"to {render.printable(output)}", row["stream_bytes"], start)


def receive(
    path: Annotated[
        str,
        typer.Argument(
            metavar="[PATH]",
            help="nvme://<target>/<file>; or an ordinary file, for a stream that has all of a snapshot.",
            show_default=False,
        ),
    ] = "",
    source: Annotated[
        str,
        typer.Option(
            "--input",
            "-i",
            metavar="FILE",
            help="Read this file, or rados://<pool>/<name>; otherwise standard input.",
        ),
    ] = "",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Give up what is there, or has changed since the base.")
    ] = False,
    token: Annotated[
        bool, typer.Option("--token", help="Print where a receive was cut short, for send --resume.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Give up what a receive has left.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only read the stream: what is in it, and whether it is whole.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a database, and a snapshot of it, of a stream that `rawduck send` wrote; whole or not at all."""
    if token + abort + verify + overwrite > 1:
        raise rawduck.RawduckError("--token, --abort, --verify and --overwrite: one of them")
    if bool(path) == verify:
        raise rawduck.RawduckError(
            f"{path}: --verify writes nowhere; leave the path out"
            if verify
            else "give the path that is to be received"
        )
    if token or abort:
        _show_received(path, abort, json)
        return
    source = "" if source == "-" else source
    if not source and sys.stdin.isatty():
        raise rawduck.RawduckError(
            "no stream at standard input: pipe `rawduck send` to it, or give --input FILE"
        )
    stream = _stream(source, _STDIN)
    start = time.perf_counter()
    query, parameters = "SELECT * FROM nvme_verify(?)", [stream]
    if not verify:
        destination = path if paths.is_volume_path(path) else os.path.abspath(path)
        query = "SELECT * FROM nvme_receive(?, ?, overwrite := ?)"
        parameters = [stream, destination, overwrite]
    try:
        with _connect(stream) as connection, progress_bar(sizes=False) as progress:
            task = progress.add_task(
                render.printable(path.rpartition("/")[2] or Path(stream).name), total=100
            )
            show = lambda percent: progress.update(task, completed=percent)  # noqa: E731
            row = run_shown(connection, query, parameters, show)
    except KeyboardInterrupt:
        _note_kept(path)
        raise
    if json:
        render.print_json(row)
    elif verify:
        _print_stream(row)
    else:
        _print_done("Received", row, f"as {render.printable(path)}", row["bytes"], start)


def _stream(file: str, descriptor: str) -> str:
    if not file:
        return descriptor
    return file if "://" in file else os.path.abspath(file)


def _note_kept(path: str) -> None:
    """What an interrupted receive leaves on a volume takes space until it goes on or is given up."""
    if not paths.is_volume_path(path):
        return
    # The interrupt is what is told, whatever else is wrong.
    with contextlib.suppress(duckdb.Error), rawduck.connect() as connection:
        if render.rows(connection, "SELECT * FROM nvme_received(?)", [path]):
            render.print_note(
                f"What came is kept: `rawduck receive --token {path}` says how to go on, and with --abort "
                "it is given up"
            )


def _connect(stream: str) -> duckdb.DuckDBPyConnection:
    return rawduck.connect(ceph=paths.is_ceph_path(stream))


def _show_received(path: str, abort: bool, json: bool) -> None:
    _require_volume_path(path)
    with rawduck.connect() as connection:
        found = render.rows(connection, "SELECT * FROM nvme_received(?, abort := ?)", [path, abort])
    if json:
        render.print_json(found)
    elif not found:
        raise rawduck.RawduckError(f"{path}: no receive was cut short there")
    elif abort:
        render.print_line(f"Gave up what was received of {render.printable(found[0]['snapshot'])}")
    else:
        render.print_line(found[0]["token"])


def _print_done(done: str, row: render.Row, where: str, size: int, start: float) -> None:
    since = f" since {row['base'].rpartition('@')[2]}" if row["base"] else ""
    took = render.seconds(time.perf_counter() - start)
    render.console.print(
        f"{done} {render.printable(row['snapshot'])}{since} {where}: {render.size(size)} in {took}",
        soft_wrap=True,
        markup=False,
    )


def _print_stream(row: render.Row) -> None:
    resumed = row["resumed_from"]
    pairs = [
        ("snapshot", row["snapshot"]),
        ("created", row["created"].strftime("%Y-%m-%d %H:%M:%S UTC")),
        ("volume", str(row["volume"])),
        ("since", row["base"] or "the whole snapshot"),
        ("size", render.size(row["size"])),
        ("in the stream", f"{render.size(row['bytes'])} in {row['records']} records, all checksums hold"),
    ]
    pairs += [("goes on from", f"{resumed}, where an earlier stream was cut off")] if resumed else []
    render.console.print(render.fields(pairs))


def _require_volume_path(path: str) -> None:
    if not paths.is_volume_path(path):
        raise rawduck.RawduckError(f"{path}: not a path on a volume; give nvme://<target>/<file>")
