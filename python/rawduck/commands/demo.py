"""`rawduck demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rawduck
from rawduck import paths, render, tpch
from rawduck.commands import demo_comparison
from rawduck.commands.options import AgreesToForce

EXIT_WRONG = 1


def register(app: typer.Typer) -> None:
    app.command("demo", epilog="Example: rawduck demo --target /dev/nvme0n1 --stock-dir /mnt/nvme")(run_demo)


def run_demo(
    target: Annotated[
        str, typer.Option(help="Volume to format: a device or file. By default a file in the work directory.")
    ] = "",
    scale: Annotated[float, typer.Option(min=0.01, help="TPC-H scale factor.")] = 1,
    work_dir: Annotated[Path, typer.Option(help="Where generated data and database files go.")] = Path(
        "build/demo"
    ),
    stock_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where stock DuckDB's file goes; the work directory by default.", show_default=False
        ),
    ] = None,
    duckdb_source: Annotated[
        Path | None,
        typer.Option(
            help="DuckDB's source release, with queries and answers; downloaded by default.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Destroy what lies on the target, after saying what and asking.")
    ] = False,
    yes: AgreesToForce = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the volume and stock DuckDB's file.")] = False,
) -> None:
    """Load TPC-H onto a volume and into an ordinary file, run all 22 queries cold, check every answer.

    The exit code is 0 when every answer is right, 1 when one is wrong, 2 when the demo could not run.
    """
    if target and paths.absolute_target(target).startswith(paths.MEMORY_PREFIX):
        raise rawduck.RawduckError("the demo compares disks; give it a file or a device")
    tpch.generator()  # where it is missing, this is said before anything is downloaded or formatted
    work_dir = work_dir.absolute()
    settings = demo_comparison.Settings(
        target=paths.absolute_target(target or str(work_dir / "demo.rawduck")),
        scale=scale,
        work_dir=work_dir,
        stock_dir=(stock_dir or work_dir).absolute(),
        duckdb_source=duckdb_source or tpch.fetched_source(work_dir),
        force=force,
        yes=yes,
        keep=keep,
    )
    if not demo_comparison.run(settings):
        render.print_error("some answers are wrong, see the table above")
        raise typer.Exit(EXIT_WRONG)
