"""`rawduck bench micro`: what one block, a run of blocks, a commit and a scan ask of the device, for every
engine and queue strategy that the target offers, next to fio."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from rich.table import Table

import rawduck
from rawduck import disks, paths, render, tpch
from rawduck.bench.core import modes
from rawduck.bench.core.case import CPU, Case, Kind, Measurement, Metric, Mode
from rawduck.bench.core.data import make_cold
from rawduck.bench.core.experiment import Experiment
from rawduck.bench.core.results import Results
from rawduck.bench.core.runner import one_line
from rawduck.bench.experiments.device import fio
from rawduck.measuring.measure import Result, Session, Stopwatch

ENGINES = (
    "io_uring_cmd",
    "nvme_ioctl",
    "io_uring",
    "posix",
    *(
        f"xnvme:{interface}"
        for interface in ("io_uring_cmd", "nvme", "io_uring", "libaio", "posix", "thrpool", "emu", "psync")
    ),
)
#: Of a PCI function (vfio:...).
DRIVERS = ("vfio", "xnvme:spdk")
STRATEGIES = ("sync", "single", "pool", "thread")
#: Thread queues with polling, where the engine can poll the target.
POLLING = "polling"

_NAME, _COMMITS_NAME = "bench-micro.duckdb", "bench-micro-commits.duckdb"
_COMMITS = 16
#: Integers that do not compress: as many as fill a block, and a run of 128.
_BLOCK_ROWS, _RUN_ROWS = 30_000, 4_000_000
_RANDOM_READS, _RANDOM_BYTES, _RANDOM_THREADS = 4096, 4096, (1, 16)
#: What fio reads, by case.
_JOBS = {"block": fio.sequential(256 * 1024), "run": fio.sequential(32 * 1024**2)} | {
    f"random-{threads}": fio.random(32 * 1024**2, _RANDOM_BYTES, _RANDOM_READS, threads)
    for threads in _RANDOM_THREADS
}

TIME = Metric("wall_ms", "wall ms", 1, ",.3f")
COMMANDS = Metric("commands", "commands", 1, ",.2f")
BYTES = Metric("bytes", "KiB", 1024, ",.1f")
COPIED_READS = Metric("bounce_read_bytes", "KiB copied, reads", 1024, ",.1f")
COPIED_WRITES = Metric("bounce_write_bytes", "KiB copied, writes", 1024, ",.1f")
FLUSHES = Metric("flushes", "flushes", 1, ",.2f")
FUA = Metric("fua_commands", "with FUA", 1, ",.2f")

_QUERIES = {
    "block": ("A block of 256 KiB", "SELECT sum(v) FROM block"),
    "run": ("A run of 32 MiB", "SELECT sum(v) FROM run"),
    "customer": (
        "Scan of customer",
        "SELECT count(*), sum(c_custkey), sum(c_acctbal), sum(strlen(c_comment)), max(c_address), "
        "min(c_phone) FROM customer",
    ),
}


def _setting(engine: str) -> str:
    """The value of nvme_engine. A PCI function gets rawduck's own driver by itself, and by no name."""
    return "auto" if engine == "vfio" else engine


@dataclass
class CountedTask(Session):
    """Statements, with what they asked of the device. Times and counts are those of one statement's share."""

    statements: list[str] = field(default_factory=list)
    #: Run before the clock starts.
    before: str = ""
    #: Run when the clock has stopped: gives the answer instead of the last statement.
    after: str = ""
    #: How many pieces of work the statements are; by default one each.
    share: int = 0

    def perform(self) -> Result:
        with self.open() as connection:
            if self.before:
                connection.execute(self.before)
            counted = self._counters(connection)
            with Stopwatch() as watch:
                for statement in self.statements:
                    rows = connection.execute(statement).fetchall()
            now = self._counters(connection)
            if self.after:
                rows = connection.execute(self.after).fetchall()
        result = watch.result(rows=rows)
        share = self.share or len(self.statements)
        result.values = {name: (now[name] - counted[name]) / share for name in now}
        result.values[TIME.name] = 1000 * result.wall_seconds / share
        return result

    def _counters(self, connection: duckdb.DuckDBPyConnection) -> dict[str, float]:
        """Of the engine; stock DuckDB's work cannot be counted from outside."""
        if not self.extension:
            return {}
        sums = "sum(commands), sum(fua_commands), sum(bytes), sum(bounce_bytes)"
        query = f"SELECT operation, {sums} FROM nvme_stats() GROUP BY operation"
        rows = {row[0]: row[1:] for row in connection.execute(query).fetchall()}
        nothing = (0, 0, 0, 0)
        read, write = rows.get("read", nothing), rows.get("write", nothing)
        return {
            COMMANDS.name: int(read[0] + write[0]),
            FUA.name: int(write[1]),
            BYTES.name: int(read[2] + write[2]),
            COPIED_READS.name: int(read[3]),
            COPIED_WRITES.name: int(write[3]),
            FLUSHES.name: int(rows.get("flush", nothing)[0]),
        }


@dataclass
class ProbeTask(Session):
    """Whether a volume can be mounted with an engine."""

    target: str = ""

    def perform(self) -> Result:
        with self.connect() as connection:
            connection.execute("SELECT engine FROM nvme_info(?)", [self.target]).fetchall()
        return Result()


class Micro(Experiment):
    name = "micro"
    title = "Engines and queue strategies"
    text = (
        "Every engine that the target offers, with each way to share queues, and with thread queues that are "
        "polled where it can: a query that needs one DuckDB "
        "block of 256 KiB, one that needs a run of 32 MiB, a scan of TPC-H customer, a commit of 4 KiB (per "
        f"commit, of {_COMMITS}), and random reads of 4 KiB by 1 and by 16 threads, each of which waits for "
        f"its own (per read, of {_RANDOM_READS:,}, by nvme_random_reads). Commands, bytes, copies and "
        "flushes are those that the engine sent to the target during the query; stock DuckDB's cannot be "
        "counted from outside. fio reads the same amounts from the same place."
    )
    scale = 1.0
    quick_scale = 0.05
    quick_runs = 1
    metrics = (TIME, COMMANDS, BYTES, COPIED_READS, COPIED_WRITES, FLUSHES, FUA, CPU)
    main_metric = TIME

    def cases(self) -> Iterator[Case]:
        possible = DRIVERS if paths.is_function(self.bench.options.target) else ENGINES
        engines = [engine for engine in possible if self._is_offered(engine)]
        yardsticks = self._yardsticks()
        for name, (title, query) in _QUERIES.items():
            yield Case(
                name,
                title,
                {"query": query, "scale": self.bench.scale(self)},
                [*self._ways(engines, "READ_ONLY"), *yardsticks.get(name, [])],
                lambda mode, name=name, query=query: self._read(mode, name, query),
                self._prepare,
                warm_up=False,
            )
        for threads in _RANDOM_THREADS:
            name = f"random-{threads}"
            yield Case(
                name,
                f"Random reads of 4 KiB by {threads} thread{'s' if threads > 1 else ''}",
                {"reads": _RANDOM_READS, "threads": threads, "scale": self.bench.scale(self)},
                [*yardsticks.get(name, []), *self._ways(engines, "READ_ONLY")[1:]],
                lambda mode, name=name, threads=threads: self._read_randomly(mode, name, threads),
                self._prepare,
                warm_up=False,
            )
        yield Case(
            "commit",
            "A commit of 4 KiB",
            {"commits": _COMMITS},
            self._ways(engines, ""),
            self._commit,
            warm_up=False,
        )

    def _is_offered(self, engine: str) -> bool:
        settings = {"nvme_engine": _setting(engine)}
        task = ProbeTask("", True, settings=settings, target=self.bench.options.target)
        try:
            self.bench.run_task(task)
        except rawduck.RawduckError as error:
            self.leave_out(engine, one_line(error))
            return False
        return True

    def _polls(self, engine: str) -> bool:
        if engine == "vfio":
            return True
        target = disks.block_device(self.bench.options.target)
        can_poll = Path("/sys/block") / Path(target).name / "queue/io_poll"
        return engine == "io_uring_cmd" and can_poll.exists() and can_poll.read_text().strip() == "1"

    def _yardsticks(self) -> dict[str, list[Mode]]:
        if paths.is_function(self.bench.options.target):
            self.leave_out("fio", "it reads through the kernel, which does not drive this target")
            return {}
        if not shutil.which("fio"):
            self.leave_out("fio", "it is not installed (apt install fio)")
            return {}
        return {
            name: [
                Mode("fio", f"fio, io_uring, depth {job.settings['iodepth']}", Kind.YARDSTICK, job.settings)
            ]
            for name, job in _JOBS.items()
        }

    def _strategies(self, engine: str) -> list[tuple[str, str]]:
        """Names, and the setting's values."""
        polling = [(POLLING, "thread,polling=on")] if self._polls(engine) else []
        return [*((strategy, strategy) for strategy in STRATEGIES), *polling]

    def _ways(self, engines: list[str], attach_options: str) -> list[modes.DuckMode]:
        ours = [
            modes.make(
                f"{engine}-{strategy}",
                f"{engine}, {strategy}",
                modes.ON_VOLUME,
                extension_settings={"nvme_engine": _setting(engine), "nvme_queues": f"mode={queues}"},
                attach_options=attach_options,
            )
            for engine in engines
            for strategy, queues in self._strategies(engine)
        ]
        return [modes.make(modes.STOCK, "stock", attach_options=attach_options), *ours]

    def _prepare(self) -> None:
        """The tables, as stock DuckDB's file and as a copy of it on the volume."""
        stock = self.bench.scratch / _NAME
        if stock.exists():
            return
        database = self.bench.database(self.bench.scale(self), "customer")
        database.generate()
        with duckdb.connect(str(stock)) as connection:
            connection.execute(tpch.load_statement(database.parquet, "customer"))
            for table, rows in (("block", _BLOCK_ROWS), ("run", _RUN_ROWS)):
                connection.execute(f"CREATE TABLE {table} AS SELECT hash(range) AS v FROM range({rows})")
        self.bench.volume.copy(stock, self.bench.volume.path(_NAME))

    def _read(self, mode: Mode, case: str, query: str) -> Measurement:
        if not isinstance(mode, modes.DuckMode):
            return self._read_by_fio(case)
        on_volume = mode.place == modes.ON_VOLUME
        stock = self.bench.scratch / _NAME
        if not on_volume:
            make_cold(stock)
        database = self.bench.volume.path(_NAME) if on_volume else str(stock)
        task = CountedTask(**vars(self.bench.session(mode, database)), statements=[query])
        return Measurement.of(self.bench.run_task(task))

    def _read_randomly(self, mode: Mode, case: str, threads: int) -> Measurement:
        if not isinstance(mode, modes.DuckMode):
            return self._read_by_fio(case)
        database = self.bench.volume.path(_NAME)
        arguments = f"reads := {_RANDOM_READS}, bytes := {_RANDOM_BYTES}, threads := {threads}"
        statement = f"SELECT first_words FROM nvme_random_reads({paths.quote(database)}, {arguments})"
        session = self.bench.session(mode, database)
        task = CountedTask(**vars(session), statements=[statement], share=_RANDOM_READS)
        return Measurement.of(self.bench.run_task(task))

    def _read_by_fio(self, case: str) -> Measurement:
        """From the database's own bytes: what was never written costs a file system nothing to read."""
        offset, length = max(self.bench.volume.file_ranges(_NAME), key=lambda place: place[1])
        job = _JOBS[case]
        if length < job.size:
            raise rawduck.RawduckError(f"the database lies in pieces of less than {render.size(job.size)}")
        return fio.measure(self.bench.options.target, offset, job, TIME.name)

    def tables(self, results: Results) -> Iterator[Table]:
        columns = (COMMANDS, BYTES, COPIED_READS, COPIED_WRITES, FLUSHES, FUA, TIME)
        table = render.table("work", "engine", "strategy", *(f">{metric.title}" for metric in columns))
        for case in results.cases:
            for mode in results.modes(case):
                engine, _, strategy = mode.title.partition(", ")
                medians = [results.median(case, mode, metric) for metric in columns]
                cells = [
                    "" if value is None else m.text(value) for m, value in zip(columns, medians, strict=True)
                ]
                table.add_row(case.name, engine, strategy, *cells)
            table.add_section()
        yield table

    def _commit(self, mode: Mode) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        database = self.bench.new_database(mode, _COMMITS_NAME)
        task = CountedTask(
            **vars(self.bench.session(mode, database)),
            before="CREATE TABLE pages (page VARCHAR)",
            statements=["INSERT INTO pages SELECT repeat('x', 4096)"] * _COMMITS,
            after="SELECT count(*), sum(strlen(page)) FROM pages",
        )
        try:
            return Measurement.of(self.bench.run_task(task))
        finally:
            self.bench.remove_database(mode, _COMMITS_NAME)
