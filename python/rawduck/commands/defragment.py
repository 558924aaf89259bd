"""`rawduck defragment`: a file of a volume in fewer pieces."""

from __future__ import annotations

import time
from typing import Annotated

import typer

import rawduck
from rawduck import paths, render
from rawduck.commands.options import Json
from rawduck.commands.progress import progress_bar, run_shown


def register(app: typer.Typer) -> None:
    example = "rawduck defragment nvme:///dev/nvme0n1/sales.duckdb --rate 100M"
    app.command("defragment", epilog=f"Example: {example}")(defragment)


def defragment(
    path: Annotated[str, typer.Argument(help="nvme://<target>/<file>.")],
    rate: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes a second that are copied at most, such as 100M.")
    ] = "",
    json: Json = False,
) -> None:
    """Copy what lies in short pieces of a file to fewer, longer ones. Ctrl-C keeps what was done."""
    if not paths.is_volume_path(path):
        raise rawduck.RawduckError(f"{path}: not a path on a volume; give nvme://<target>/<file>")
    start = time.perf_counter()
    with rawduck.connect() as connection, progress_bar(sizes=False) as progress:
        task = progress.add_task(render.printable(path.rpartition("/")[2]), total=100)
        row = run_shown(
            connection,
            "SELECT * FROM nvme_defragment(?, rate := ?)",
            [path, rate or None],
            lambda percent: progress.update(task, completed=percent),
        )
    if json:
        render.print_json(row)
        return
    copied = f"{render.size(row['copied'])} copied in {render.seconds(time.perf_counter() - start)}"
    extents = f"{row['extents_before']} extents before, {row['extents']} now"
    render.console.print(f"Defragmented {render.printable(row['file'])}: {extents}; {copied}", soft_wrap=True)
    for size, why in (
        (row["shared"], "snapshots, clones or readers have them, too"),
        (row["no_place"], "no free piece of the volume is long enough"),
    ):
        if size:
            render.console.print(f"{render.size(size)} in short pieces stayed: {why}", soft_wrap=True)
