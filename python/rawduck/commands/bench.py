"""`rawduck bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import rawduck
from rawduck import bench_scan, paths

_EXAMPLE = "Example: rawduck bench scan --target /dev/nvme0n1 --stock /mnt/nvme/stock.duckdb --scale 5"


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Measure against stock DuckDB and the device.", no_args_is_help=True)
    group.command("scan", epilog=_EXAMPLE)(scan)
    app.add_typer(group, name="bench")


def scan(
    target: Annotated[
        str, typer.Option(help="A volume; a file that is missing is formatted.", show_default=False)
    ],
    stock: Annotated[Path, typer.Option(help="Stock DuckDB's file, on the same disk.", show_default=False)],
    scale: Annotated[float, typer.Option(min=0.01, help="TPC-H scale factor of lineitem.")] = 5,
    runs: Annotated[int, typer.Option(min=1, help="Measured runs of each mode.")] = 7,
    work_dir: Annotated[Path, typer.Option(help="Where generated data goes.")] = Path("build/bench"),
    format: Annotated[bool, typer.Option("--format", help="Format the target first.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Destroy what lies on the target or in the file.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write every measurement to this CSV file.", show_default=False)
    ] = None,
) -> None:
    """Scan lineitem cold: on a volume, in file mode, by stock DuckDB in its modes, and the bare device.

    Modes take turns, each measurement is a fresh process with nothing cached, and answers are compared.
    """
    target = paths.absolute_target(target)
    if target.startswith(paths.MEMORY_PREFIX):
        raise rawduck.RawduckError("the benchmark measures disks; give it a file or a device")
    stock.absolute().parent.mkdir(parents=True, exist_ok=True)
    bench_scan.run(
        bench_scan.Settings(target, stock.absolute(), scale, runs, work_dir.absolute(), format, force, out)
    )
