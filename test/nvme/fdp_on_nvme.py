"""Flexible data placement on a namespace with three handles: what a volume writes lands where it says, and
nvme-cli, which asks the device by itself, agrees with nvme_fdp().
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from dataclasses import dataclass

import duckdb
import rawduck
from rawduck import render

RECLAIM_UNIT = 512 * 1024**2  # as test/nvme/run.sh makes the device; no test writes as much to one handle
LBA = 4096
AUTO = {0: ["database"], 1: ["metadata", "wal"], 2: ["temporary"]}

COLUMNS = ", ".join(f"hash(range + {i}) AS c{i}" for i in range(10))
SPILL = f"CREATE OR REPLACE TEMP TABLE spilled AS SELECT {COLUMNS} FROM range(500000)"


def nvme_cli(*arguments: str) -> dict:
    output = subprocess.run(
        ["nvme", *arguments, "-o", "json"], capture_output=True, text=True, check=True
    ).stdout
    return json.loads(output)


@dataclass
class Witness:
    """What nvme-cli sees."""

    remaining: dict[int, int]  # bytes per placement identifier
    host_bytes: int
    media_bytes: int
    erased_bytes: int

    @classmethod
    def ask(cls, device: str) -> Witness:
        handles = nvme_cli("fdp", "status", device)["ruhss"]
        log = nvme_cli("fdp", "stats", device, "-e", "1")
        numbers = (int(log[name]) for name in ("hbmw", "mbmw", "mbe"))
        return cls({handle["pid"]: handle["ruamw"] * LBA for handle in handles}, *numbers)

    def written_since(self, before: Witness) -> dict[int, int]:
        """Bytes per identifier; a full reclaim unit is followed by an empty one."""
        return {pid: (before.remaining[pid] - left) % RECLAIM_UNIT for pid, left in self.remaining.items()}


def check(results, target: str, engine: str, placement: str = "auto") -> None:
    with connect(engine, placement) as connection:
        connection.execute("CALL nvme_format(?, force := true)", [target])
        phases = Phases(connection, target)
        name = f"placement {placement} on {target} with {engine}"
        results.check(f"{name}: a database", phases.database)
        results.check(f"{name}: spilling", phases.spill)
        results.check(f"{name}: as nvme-cli sees it", phases.compare)


def connect(engine: str, placement: str = "auto") -> duckdb.DuckDBPyConnection:
    config = {"memory_limit": "32MB", "threads": 2, "block_allocator_memory": "0B"}
    connection = rawduck.connect(config=config)
    connection.execute(
        f"SET nvme_engine = '{engine}'; SET nvme_placement = '{placement}'; SET nvme_spill_buffer = '0'"
    )
    return connection


class Phases:
    """A workload whose phases write different classes."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, target: str) -> None:
        self.connection, self.target = connection, target
        connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
        connection.execute(f"SET temp_directory = 'nvme://{target}/tmp'")
        rows = self.fdp()
        self.handle = {name: row["placement"] for row in rows for name in row["classes"]}
        connection.execute("CALL nvme_reset_stats()")
        self.start = Witness.ask(target)

    def fdp(self) -> list[render.Row]:
        return render.rows(self.connection, "SELECT * FROM nvme_fdp(?)", [self.target])

    def written(self, before: Witness) -> dict[int, int]:
        return Witness.ask(self.target).written_since(before)

    def database(self) -> None:
        before = Witness.ask(self.target)
        self.connection.execute("CREATE TABLE x.t AS SELECT range AS v, hash(range) AS h FROM range(200000)")
        self.connection.execute("INSERT INTO x.t SELECT range, 1 FROM range(1000)")  # through the log
        assert self.written(before)[self.handle["wal"]] > 0
        self.connection.execute("CHECKPOINT x")
        written = self.written(before)
        assert written[self.handle["database"]] > 1_500_000, written
        assert written[self.handle["temporary"]] == 0, written

    def spill(self) -> None:
        self.connection.execute(SPILL)  # the first makes the directory, which is a record
        before = Witness.ask(self.target)
        self.connection.execute(SPILL)
        rows = self.connection.execute("SELECT count(*), min(c0) FROM spilled").fetchone()
        assert rows[0] == 500000
        written = self.written(before)
        temporary = written.pop(self.handle["temporary"])
        assert temporary > 8_000_000, temporary
        assert not any(written.values()), f"nothing else was written, and yet {written}"

    def compare(self) -> None:
        rows, now = self.fdp(), Witness.ask(self.target)
        written = now.written_since(self.start)
        assert {row["placement"]: row["written"] for row in rows} == written
        assert {row["placement"]: row["remaining"] for row in rows} == now.remaining
        for row in rows:
            assert row["device_host_bytes"] == now.host_bytes
            assert row["device_media_bytes"] == now.media_bytes
            assert row["device_erased_bytes"] == now.erased_bytes
            assert row["write_amplification"] == now.media_bytes / now.host_bytes
        total = "SELECT sum(bytes) FROM nvme_stats() WHERE operation = 'write'"
        assert now.host_bytes - self.start.host_bytes == sum(written.values())
        assert self.connection.execute(total).fetchone()[0] == sum(written.values())


def check_settings(results, fdp: str, block: str, plain: str) -> None:
    """FDP is the namespace with placement, by its character device and its block device; PLAIN has none."""
    results.check("the default map", lambda: default_map(fdp))
    results.check("auto takes passthrough where that can place", lambda: auto_prefers_placement(block))
    results.check("off sends no identifier", lambda: placement_off(fdp))
    results.check("an identifier that is not there", lambda: bad_identifier(fdp))
    results.check("no placement: nvme_fdp says so", lambda: no_placement(plain))
    results.check("no placement through the block layer", lambda: block_layer(block))
    results.check("rawduck info shows placement", lambda: command_line(fdp))


def attached(connection: duckdb.DuckDBPyConnection, target: str) -> render.Row:
    connection.execute(f"ATTACH OR REPLACE 'nvme://{target}/x.duckdb' AS x")
    return render.rows(connection, "SELECT * FROM nvme_volumes()")[0]


def default_map(target: str) -> None:
    with connect("auto") as connection:
        rows = render.rows(connection, "SELECT * FROM nvme_fdp(?)", [target])
        assert {row["placement"]: row["classes"] for row in rows} == AUTO
        assert [row["reclaim_unit_handle"] for row in rows] == [1, 2, 3]
        assert attached(connection, target)["placement"] == "database=0, metadata=1, wal=1, temporary=2"


def auto_prefers_placement(block: str) -> None:
    with connect("auto") as connection:
        row = attached(connection, block)
        assert (row["engine"], row["placement"][:10]) == ("io_uring_cmd", "database=0"), row
        assert "flexible data placement" in row["engine_reason"], row
    with connect("auto", "off") as connection:
        assert attached(connection, block)["engine"] == "io_uring"


def placement_off(target: str) -> None:
    before = Witness.ask(target)
    with connect("io_uring_cmd", "off") as connection:
        assert attached(connection, target)["placement"].startswith("off: ")
        connection.execute("CREATE OR REPLACE TABLE x.t AS SELECT range AS v FROM range(1000); CHECKPOINT x")
    written = Witness.ask(target).written_since(before)
    assert written[0] > 0, written
    assert written[1] == written[2] == 0, written


def bad_identifier(target: str) -> None:
    expected = "asks for temporary=7, but the namespace has only the placement identifiers 0, 1, 2"
    with connect("auto", "database=0,temporary=7") as connection:
        assert expected in failure(connection, f"ATTACH 'nvme://{target}/x.duckdb' AS x")


def no_placement(plain: str) -> None:
    with connect("auto") as connection:
        message = failure(connection, f"FROM nvme_fdp('{plain}')")
        assert plain in message, message
        assert "no flexible data placement" in message, message


def block_layer(block: str) -> None:
    with connect("io_uring") as connection:
        placement = attached(connection, block)["placement"]
        assert placement.startswith("off: this kernel's block layer"), placement
        rows = render.rows(connection, "SELECT * FROM nvme_fdp(?)", [block])
        assert [row["classes"] for row in rows] == [[], [], []]
    with connect("posix", "wal=1") as connection:
        assert "block layer" in failure(connection, f"ATTACH 'nvme://{block}/x.duckdb' AS x")


def failure(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    try:
        connection.execute(statement)
    except duckdb.Error as error:
        return str(error)
    raise AssertionError(f"{statement} did not fail")


def command_line(target: str) -> None:
    from rawduck.commands import devices, volume

    def printed(command, *arguments) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            command(*arguments)
        return text.getvalue()

    info = json.loads(printed(volume.info, target, True))
    assert [row["classes"] for row in info["fdp"]] == list(AUTO.values())
    text = printed(volume.info, target)
    assert "temporary" in text, text
    assert "amplification" in text, text
    assert "FDP" in printed(devices.list_devices)
