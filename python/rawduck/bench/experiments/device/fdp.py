"""`rawduck bench fdp`: a database that is updated while a query spills, with and without placement."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

import rawduck
from rawduck.bench.core import modes
from rawduck.bench.core.case import CPU, READ, WALL, WRITTEN, Case, Measurement, Metric, Mode
from rawduck.bench.core.experiment import Experiment
from rawduck.measuring.measure import Result, Session, Stopwatch

_NAME = "bench-fdp.duckdb"
_ROWS_PER_SCALE = 1_000_000
_ROUNDS = 4
_MEMORY = "192MiB"

HOST = Metric("device_host_bytes", "MiB sent to the device", 1024**2, ".0f")
MEDIA = Metric("device_media_bytes", "MiB written to its media", 1024**2, ".0f")
AMPLIFICATION = Metric("write_amplification", "write amplification", 1, ".3f")


@dataclass
class FdpTask(Session):
    """Makes a table, then updates and checkpoints it again and again while another thread sorts what does not
    fit into memory."""

    rows: int = 0
    #: Whose statistics to take; empty where there are none.
    fdp_target: str = ""

    def perform(self) -> Result:
        with self.open() as connection:
            before = self._device_bytes(connection)
            with Stopwatch() as watch:
                sorted_rows = self._work(connection)
            values = self._values(before, self._device_bytes(connection))
            answer = connection.execute("SELECT count(*), sum(hash(payload)) FROM events").fetchall()
        return watch.result(rows=answer + sorted_rows, values=values)

    def _work(self, connection: duckdb.DuckDBPyConnection) -> list[tuple]:
        rows = f"SELECT range AS id, md5(range::VARCHAR) AS payload FROM range({self.rows})"
        connection.execute(f"CREATE TABLE events AS {rows}")
        answers: list[tuple] = []
        failures: list[duckdb.Error] = []
        spilling = threading.Thread(target=self._spill, args=(connection.cursor(), answers, failures))
        spilling.start()
        try:
            for turn in range(_ROUNDS):
                connection.execute(
                    f"UPDATE events SET payload = md5(payload || {turn}) WHERE id % {_ROUNDS} = {turn}"
                )
                connection.execute("CHECKPOINT")
        finally:
            spilling.join()
        if failures:
            raise failures[0]
        return answers

    def _spill(
        self, connection: duckdb.DuckDBPyConnection, answers: list[tuple], failures: list[duckdb.Error]
    ) -> None:
        # It reads no table of the database, whose checkpoints would otherwise be refused. The window
        # keeps DuckDB from dropping the sort.
        query = f"""
            SELECT count(*), sum(v * (n % 7)), max(s) FROM (
                SELECT v, s, row_number() OVER (ORDER BY s) AS n
                FROM (SELECT range AS v, md5(range::VARCHAR) AS s FROM range({2 * self.rows})))
        """
        try:
            answers += connection.execute(query).fetchall()
        except duckdb.Error as error:
            failures.append(error)

    def _device_bytes(self, connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
        """Bytes that hosts sent, and that the device wrote to its media, since it was made."""
        if not self.fdp_target:
            return 0, 0
        query = "SELECT device_host_bytes, device_media_bytes FROM nvme_fdp(?) LIMIT 1"
        return connection.execute(query, [self.fdp_target]).fetchone()

    def _values(self, before: tuple[int, int], after: tuple[int, int]) -> dict[str, float]:
        if not self.fdp_target:
            return {}
        host, media = after[0] - before[0], after[1] - before[1]
        values = {HOST.name: host, MEDIA.name: media}
        return values | ({AMPLIFICATION.name: media / host} if host else {})


class Fdp(Experiment):
    name = "fdp"
    title = "Flexible data placement"
    text = (
        f"A table of {_ROWS_PER_SCALE / 1e6:g} million rows per unit of scale is made, and updated and "
        f"checkpointed {_ROUNDS} times, while another query of the same process sorts twice as many rows "
        f"with a memory limit of {_MEMORY}. Write amplification is what the device wrote to its media over "
        "what it was sent meanwhile, by its own statistics; without placement, everything goes to its first "
        "handle."
    )
    metrics = (WALL, CPU, READ, WRITTEN, HOST, MEDIA, AMPLIFICATION)
    quick_runs = 2
    gib_per_scale = 1.0

    def cases(self) -> Iterator[Case]:
        rows = int(self.bench.scale(self) * _ROWS_PER_SCALE)
        self._fdp_target = self._target_with_fdp()
        ways = [self._ours(modes.VOLUME, "rawduck, volume")]
        if self._fdp_target:
            ways.append(self._ours("no_placement", "rawduck, volume, no placement", nvme_placement="off"))
        ways.append(modes.make(modes.STOCK, "stock, default", attach_options=""))
        yield Case(
            "updates",
            f"Updates of {rows:,} rows beside a sort of {2 * rows:,}",
            {"rows": rows, "rounds": _ROUNDS},
            modes.with_config(
                ways,
                threads=self.bench.options.threads,
                memory_limit=self.bench.options.memory_limit or _MEMORY,
            ),
            lambda mode: self._measure(mode, rows),
            warm_up=False,
        )

    def _ours(self, name: str, title: str, **settings: str) -> modes.DuckMode:
        settings |= {"nvme_spill_buffer": "28 MiB"}  # what stays in memory is not placed
        return modes.make(name, title, modes.ON_VOLUME, extension_settings=settings, attach_options="")

    def _target_with_fdp(self) -> str:
        """The target, if it is an NVMe namespace with FDP; '' otherwise, and the report says why."""
        target = self.bench.options.target
        try:
            with rawduck.connect() as connection:
                connection.execute("SELECT * FROM nvme_fdp(?)", [target]).fetchall()
        except duckdb.Error as error:
            self.leave_out("placement and write amplification", " ".join(str(error).split()))
            return ""
        return target

    def _measure(self, mode: Mode, rows: int) -> Measurement:
        assert isinstance(mode, modes.DuckMode)
        database = self.bench.new_database(mode, _NAME)
        target = self._fdp_target if mode.place == modes.ON_VOLUME else ""
        task = FdpTask(**vars(self.bench.session(mode, database)), rows=rows, fdp_target=target)
        try:
            return Measurement.of(self.bench.run_task(task))
        finally:
            self.bench.remove_database(mode, _NAME)
