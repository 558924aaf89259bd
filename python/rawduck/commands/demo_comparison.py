"""The demonstration: TPC-H on a volume and in an ordinary file, cold, every answer checked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

import rawduck
from rawduck import consent, disks, paths, render, tpch, volumes
from rawduck.measuring import cold
from rawduck.measuring.measure import QueryTask, StatsTask, Worker

DATABASE = "tpch.duckdb"

#: Of a volume in the demo's own file. What lies there without it is somebody else's.
_LABEL = "rawduck demo"


@dataclass
class Settings:
    target: str
    scale: float
    work_dir: Path
    stock_dir: Path
    duckdb_source: Path
    force: bool
    yes: bool
    keep: bool

    @property
    def own_target(self) -> bool:
        """Whether the volume is the demo's own file, which it may overwrite and remove."""
        return Path(self.target) == (self.work_dir / "demo.rawduck").absolute()

    @property
    def data(self) -> Path:
        return self.work_dir / f"tpch-sf{self.scale:g}"

    @property
    def volume_database(self) -> str:
        return paths.volume_path(self.target, DATABASE)

    @property
    def stock_database(self) -> Path:
        """The demo's own file, which it overwrites and removes: nobody else's has this name."""
        return self.stock_dir / "rawduck-demo.duckdb"


@dataclass
class Timing:
    query: int
    volume_seconds: float
    stock_seconds: float
    volume_error: str
    stock_error: str

    @property
    def ratio(self) -> float:
        return self.stock_seconds / self.volume_seconds

    @property
    def correct(self) -> bool:
        return not self.volume_error and not self.stock_error


def run(settings: Settings) -> bool:
    """Runs everything. Returns whether every answer was right."""
    start = time.perf_counter()
    reference = tpch.Reference(settings.duckdb_source, settings.scale)
    paths.make_folder(settings.work_dir, "--work-dir")
    paths.make_folder(settings.stock_dir, "--stock-dir")
    _format(settings)  # outside of what is cleaned up after: where it is refused, nothing was made
    try:
        verb = "Use the" if tpch.is_generated(settings.data, settings.scale) else "Generate"
        with _step(f"{verb} TPC-H data of scale factor {settings.scale:g} in {settings.data}"):
            tpch.generate(settings.data, settings.scale)
        loading = _load_volume(settings)
        _load_stock(settings)
        with Worker() as volume_worker, Worker() as stock_worker:
            timings = _run_queries(settings, reference, volume_worker, stock_worker)
            querying = volume_worker.run(StatsTask())
        _print_timings(settings, reference, timings)
        _print_layout(settings)
        _print_engine(
            [
                ("load", loading),
                ("queries", [dict(zip(querying.columns, row, strict=True)) for row in querying.rows]),
            ]
        )
    finally:
        _clean_up(settings)
    render.console.print(f"\nTotal {time.perf_counter() - start:.0f} s")
    return all(timing.correct for timing in timings)


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Shows what is going on, and its time when it is done."""
    start = time.perf_counter()
    with render.console.status(f"{what} …"):
        yield
    took = render.seconds(time.perf_counter() - start)
    render.console.print(f"[green]✓[/] {what} [dim]({took})[/]", soft_wrap=True)


def _format(settings: Settings) -> None:
    options: dict = {"force": settings.force or settings.own_target}
    if not disks.is_device(settings.target):
        options["size"] = f"{1 + math.ceil(settings.scale)}G"
    with rawduck.connect() as connection:
        if disks.is_block_device(settings.target):
            _describe_device(connection, settings)
        if settings.own_target:
            options["label"] = _LABEL
            options["agreed"] = consent.to_replace_own(connection, settings.target, _LABEL)
        elif settings.force:
            options["agreed"] = consent.to_format(connection, [settings.target], settings.yes)
        row = volumes.format_volume(connection, settings.target, **options)
    size, lba = render.size(row["capacity"]), row["lba_size"]
    render.console.print(f"[green]✓[/] Format {settings.target}: {size}, LBAs of {lba} bytes", soft_wrap=True)


def _describe_device(connection: duckdb.DuckDBPyConnection, settings: Settings) -> None:
    real = str(Path(settings.target).resolve())
    query = "SELECT model, capacity, in_use FROM nvme_devices() WHERE path = ?"
    for device in render.rows(connection, query, [real]):
        model, holds = device["model"] or "no model name", "; ".join(device["in_use"] or []) or "nothing"
        size = render.size(device["capacity"])
        render.console.print(f"Found {settings.target}: {model}, {size}, holds {holds}", soft_wrap=True)
    if disks.disk_of(settings.target) != disks.disk_of(settings.stock_dir):
        render.console.print(
            f"[yellow]{settings.stock_dir} lies on another disk than {settings.target}: the times below "
            "compare the disks too. Name a folder on the same disk with --stock-dir.[/]"
        )


def _load_volume(settings: Settings) -> list[render.Row]:
    """Loads the database on the volume. Returns what the engine did for it."""
    with _step(f"Load {settings.volume_database}"), rawduck.connect(settings.volume_database) as connection:
        _load_tables(connection, settings)
        return render.rows(connection, "SELECT * FROM nvme_stats()")


def _load_stock(settings: Settings) -> None:
    settings.stock_database.unlink(missing_ok=True)
    with (
        _step(f"Load {settings.stock_database}"),
        duckdb.connect(str(settings.stock_database)) as connection,
    ):
        _load_tables(connection, settings)


def _load_tables(connection: duckdb.DuckDBPyConnection, settings: Settings) -> None:
    connection.execute("SET enable_progress_bar = false")
    for table in tpch.TABLES:
        connection.execute(tpch.load_statement(settings.data, table))
    connection.execute("CHECKPOINT")


def _run_queries(
    settings: Settings, reference: tpch.Reference, volume_worker: Worker, stock_worker: Worker
) -> list[Timing]:
    """Every query on both sides, one after the other, the side that goes first taking turns."""
    for worker, extension in ((volume_worker, True), (stock_worker, False)):
        worker.run(_task(settings, "SELECT count(*) FROM region", extension))
    timings = []
    with render.console.status("") as status:
        for number in tpch.QUERY_NUMBERS:
            status.update(
                f"Query {number} of {len(tpch.QUERY_NUMBERS)}, cold, on the volume and in the file …"
            )
            query = reference.query(number)
            results = {}
            for extension in (True, False) if number % 2 else (False, True):
                _make_cold(settings)
                worker = volume_worker if extension else stock_worker
                results[extension] = worker.run(_task(settings, query, extension))
            timings.append(_judge(reference, number, results[True], results[False]))
            if not render.console.is_terminal:
                render.console.print(_progress_line(timings[-1]))
    return timings


def _task(settings: Settings, query: str, extension: bool) -> QueryTask:
    database = settings.volume_database if extension else str(settings.stock_database)
    return QueryTask(database, extension, query=query)


def _make_cold(settings: Settings) -> None:
    """Nothing of the stock file stays in memory. The volume is read directly and never cached."""
    left = cold.evict(settings.stock_database)
    if left:
        raise rawduck.RawduckError(
            f"{settings.stock_database}: the kernel keeps {render.size(left)} of it in memory, so a cold "
            "measurement is not possible; run as root"
        )


def _judge(reference: tpch.Reference, number: int, volume, stock) -> Timing:
    """Compares with the reference answers, or with one another where DuckDB publishes none."""
    if reference.has_answers:
        answer = reference.answer(number)
        errors = tpch.difference(volume.rows, answer), tpch.difference(stock.rows, answer)
    else:
        same = tpch.same_rows(volume.rows, stock.rows)
        errors = ("" if same else "differs from the answer of stock DuckDB"), ""
    return Timing(number, volume.wall_seconds, stock.wall_seconds, *errors)


def _progress_line(timing: Timing) -> str:
    verdict = "ok" if timing.correct else "WRONG"
    times = f"volume {timing.volume_seconds:.3f} s, stock {timing.stock_seconds:.3f} s"
    return f"  query {timing.query:2}: {times}, answer {verdict}"


def _print_timings(settings: Settings, reference: tpch.Reference, timings: list[Timing]) -> None:
    title = f"\nTPC-H SF{settings.scale:g}, cold, seconds"
    table = render.table("query", ">volume", ">stock", ">stock / volume", "answer", title=title)
    for timing in timings:
        wrong = timing.volume_error or timing.stock_error
        table.add_row(
            f"{timing.query:2}",
            f"{timing.volume_seconds:.3f}",
            f"{timing.stock_seconds:.3f}",
            f"{timing.ratio:.2f}",
            "[green]ok[/]" if timing.correct else f"[bold red]{wrong}[/]",
        )
    table.add_section()
    volume, stock = (sum(t.volume_seconds for t in timings), sum(t.stock_seconds for t in timings))
    table.add_row("sum", f"{volume:.3f}", f"{stock:.3f}", f"{stock / volume:.2f}", "")
    mean = math.exp(sum(math.log(timing.ratio) for timing in timings) / len(timings))
    table.add_row("geometric mean", "", "", f"[bold]{mean:.2f}[/]", "")
    render.console.print(table)
    wrong = sum(not timing.correct for timing in timings)
    against = "DuckDB's reference answers" if reference.has_answers else "stock DuckDB"
    verdict = (
        f"[bold red]{wrong} of {len(timings)} answers are wrong[/]"
        if wrong
        else "[green]every answer right[/]"
    )
    render.console.print(f"Checked against {against}: {verdict}")


def _print_layout(settings: Settings) -> None:
    """Where the bytes lie."""
    with rawduck.connect() as connection:
        files = volumes.volume_files(connection, settings.target)
    table = render.table(
        ">", "file", "kind", ">size", ">extents", "LBA ranges", title=f"\nOn {settings.target}"
    )
    for number, file in enumerate(files, 1):
        ranges = [f"{e['lba']:,}-{e['lba'] + e['lba_count'] - 1:,}" for e in file["extent_list"]]
        shown = "  ".join(ranges[:4]) + (f"  and {len(ranges) - 4} more" if len(ranges) > 4 else "")
        table.add_row(
            str(number),
            file["name"],
            file["kind"].lower(),
            render.size(file["size"]),
            str(file["extents"]),
            shown,
        )
    render.console.print(table)


def _print_engine(phases: list[tuple[str, list[render.Row]]]) -> None:
    """What the engine did."""
    table = render.table(
        "phase", "operation", ">requests", ">commands", ">bytes", ">copied", ">depth mean", ">max",
        ">p50 µs", ">p99 µs", ">max µs", title="\nWhat the engine did",
    )  # fmt: skip
    for phase, stats in phases:
        for row in stats:
            if row["commands"]:
                table.add_row(phase, row["operation"], *_engine_numbers(row))
    render.console.print(table)


def _engine_numbers(row: render.Row) -> list[str]:
    counts = [f"{row['requests']:,}", f"{row['commands']:,}"]
    sizes = [render.size(row["bytes"]), render.size(row["bounce_bytes"])]
    depth = [f"{row['depth_mean']:.1f}", f"{row['depth_max']}"]
    return counts + sizes + depth + [f"{row[f'latency_{part}_us']:,.0f}" for part in ("p50", "p99", "max")]


def _clean_up(settings: Settings) -> None:
    if settings.keep:
        return
    settings.stock_database.unlink(missing_ok=True)
    if settings.own_target:
        Path(settings.target).unlink(missing_ok=True)
