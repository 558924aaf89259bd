"""`rawduck bench`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

import rawduck
from rawduck import disks, paths, render
from rawduck.bench import EXPERIMENTS
from rawduck.bench.core import report
from rawduck.bench.core.bench import Bench, Outcome
from rawduck.bench.core.options import OWN_TARGET, Options
from rawduck.commands.options import AgreesToForce

ALL = "all"
EXIT_FAILED_RUNS = 1
EXIT_SIGNAL = 128  # and the number of the signal

_EXAMPLE = "Example: rawduck bench scan tpch --target /dev/nvme0n1 --stock-dir /mnt/nvme --out results"


def register(app: typer.Typer) -> None:
    app.command("bench", epilog=_EXAMPLE)(bench)


def bench(
    experiments: Annotated[
        list[str],
        typer.Argument(
            metavar="EXPERIMENT...", help=f"{ALL}, or some of: {', '.join(EXPERIMENTS)}.", show_default=False
        ),
    ],
    target: Annotated[
        str, typer.Option(help="A volume. By default a file in the work directory.", show_default=False)
    ] = "",
    stock_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where stock DuckDB's files go, on the same disk; the work directory by default.",
            show_default=False,
        ),
    ] = None,
    work_dir: Annotated[
        Path, typer.Option(help="Where generated data goes, and stays for the next time.")
    ] = Path("build/bench"),
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where each experiment's folder goes; by default results in the work directory.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Little data, few runs: about a minute each.")
    ] = False,
    scale: Annotated[
        float | None,
        typer.Option(min=0.01, help="Scale factor, by default each experiment's own.", show_default=False),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Measured runs of each configuration.", show_default=False)
    ] = None,
    cases: Annotated[
        str,
        typer.Option(
            metavar="<pattern>",
            help="Only cases with such a name, which is that of the case in results.csv: 1g-q*.",
            show_default=False,
        ),
    ] = "",
    modes: Annotated[
        str,
        typer.Option(
            metavar="<names>",
            help="Only modes with such names, which are those in results.csv: ours,ranges.",
            show_default=False,
        ),
    ] = "",
    threads: Annotated[int | None, typer.Option(min=1, help="DuckDB's threads.", show_default=False)] = None,
    memory_limit: Annotated[
        str | None, typer.Option(help="DuckDB's memory limit, such as 2GB.", show_default=False)
    ] = None,
    duckdb_source: Annotated[
        Path | None,
        typer.Option(help="DuckDB's source release, with the TPC-H queries.", show_default=False),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the results that are there, run what is missing.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the results that are there.")
    ] = False,
    format: Annotated[bool, typer.Option("--format", help="Format the target first.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Destroy what lies on the target, after saying what and asking; with --yes also databases "
            "of stock DuckDB in the way that no benchmark has made.",
        ),
    ] = False,
    yes: AgreesToForce = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what was put on the target.")] = False,
    cold_memory: Annotated[
        bool,
        typer.Option(
            "--cold-memory",
            help="Do not touch memory before each run: on a virtual machine, the runs pay for what its host "
            "has to give anew.",
        ),
    ] = False,
    ceph_conf: Annotated[
        str,
        typer.Option(
            help="Configuration file of a Ceph cluster for skyhook, which otherwise starts one.",
            show_default=False,
        ),
    ] = "",
    ceph_pool: Annotated[
        str, typer.Option(help="The pool of that cluster to put data into.", show_default=False)
    ] = "",
) -> None:
    """Measure against stock DuckDB and the device, and write raw numbers, plots and a report.

    Modes take turns, each measurement is a fresh process with nothing cached, and answers are compared.
    The exit code is 0 when all was measured, 1 when runs failed or answers differed, 2 when it could not
    begin.
    """
    chosen = list(EXPERIMENTS) if ALL in experiments else list(dict.fromkeys(experiments))
    unknown = [name for name in chosen if name not in EXPERIMENTS]
    if unknown:
        raise rawduck.RawduckError(
            f"there is no experiment {unknown[0]}; there are: {', '.join([ALL, *EXPERIMENTS])}"
        )
    if bool(ceph_conf) != bool(ceph_pool):
        raise rawduck.RawduckError("--ceph-conf and --ceph-pool go together: a cluster, and a pool in it")
    work_dir = work_dir.resolve()  # as the target has no .. in it
    options = Options(
        target=paths.absolute_target(target or str(work_dir / OWN_TARGET)),
        stock_dir=(stock_dir or work_dir).absolute(),
        work_dir=work_dir,
        out=(out or work_dir / "results").absolute(),
        duckdb_source=duckdb_source,
        scale=scale,
        runs=runs,
        cases=cases,
        modes=modes,
        threads=threads,
        memory_limit=memory_limit,
        quick=quick,
        resume=resume,
        overwrite=overwrite,
        format=format,
        force=force,
        yes=yes,
        keep=keep,
        cold_memory=cold_memory,
        ceph_conf=os.path.abspath(ceph_conf) if ceph_conf else "",
        ceph_pool=ceph_pool,
        command=report.command_line(sys.argv[1:]),
    )
    if options.target.startswith(paths.MEMORY_PREFIX):
        raise rawduck.RawduckError("the benchmarks measure disks; give them a file or a device")
    _end_on_signals()
    outcomes = _run(chosen, options)
    if len(experiments) > 1 or ALL in experiments:
        rows = [(outcome.experiment.name, outcome.bars, outcome.failed) for outcome in outcomes]
        path = report.summary(rows, options.out)
        render.console.print(f"\nAll of it: {path}", soft_wrap=True, markup=False)
    if any(outcome.failed for outcome in outcomes):
        render.print_error("some runs failed, see the reports")
        raise typer.Exit(EXIT_FAILED_RUNS)


def _end_on_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _end)


def _end(number: int, _: object) -> None:
    """Ends the benchmark as an interrupt does: what it has started, a cluster for one, is taken down."""
    for again in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(again, signal.SIG_IGN)
    raise SystemExit(EXIT_SIGNAL + number)


def _run(chosen: list[str], options: Options) -> list[Outcome]:
    outcomes = []
    with Bench([EXPERIMENTS[name] for name in chosen], options) as running:
        running.volume.ask()
        device = disks.block_device(options.target)
        if paths.is_function(options.target):
            running.say(
                f"{options.stock_dir} lies on another disk than {options.target}, which the kernel does not "
                "drive: what follows compares the disks too."
            )
        elif disks.is_block_device(device) and disks.disk_of(device) != disks.disk_of(options.stock_dir):
            running.say(
                f"{options.stock_dir} lies on another disk than {options.target}: what follows compares the "
                "disks too. Name a folder on the same disk with --stock-dir."
            )
        for outcome in running.run_all():
            outcomes.append(outcome)
            _print(outcome)
    return outcomes


def _print(outcome: Outcome) -> None:
    """The bars, and where the rest is."""
    render.console.print(f"\n[bold]{outcome.experiment.title}[/]")
    if outcome.bars:
        table = render.table("work", ">bar", ">reached", "met")
        for bar in outcome.bars:
            if bar.reached is None:
                table.add_row(bar.work, bar.wanted, "not measured", "")
            else:
                met = "[green]yes[/]" if bar.met else "[yellow]no[/]"
                table.add_row(bar.work, bar.wanted, format(bar.reached, bar.format), met)
        render.console.print(table)
    for table in outcome.experiment.tables(outcome.results):
        render.console.print(table)
    for what, why in outcome.experiment.left_out:
        render.console.print(f"Left out: {what}: {why}", soft_wrap=True, markup=False)
    for row in outcome.results.failures():
        render.console.print(
            f"Failed: {row.case}, {row.mode}, run {row.run}: {row.error}", soft_wrap=True, markup=False
        )
    render.console.print(f"Report: {outcome.report}", soft_wrap=True, markup=False)
