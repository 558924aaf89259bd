"""A hand on simulated devices: make one, count its events, cut its power."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

import duckdb


@dataclass(frozen=True)
class Geometry:
    """What kind of device: the arguments of nvme_simulate() for a new one."""

    size: str = "96M"
    lba_size: int = 4096
    atomic_write: int = 4096
    write_cache: bool = True
    fua: bool = True
    latency_us: int = 0
    seed: int = 0


CUT = "CALL nvme_simulate(?, at := ?, seed := ?, survivor := ?)"
FAULT = "CALL nvme_simulate(?, fault := ?, at := ?)"


class Disk:
    """A simulated device of this process, with a volume on it."""

    def __init__(self, name: str) -> None:
        self.target = f"simulated:{name}"

    @classmethod
    def make(cls, connection: duckdb.DuckDBPyConnection, name: str, geometry: Geometry) -> Disk:
        disk = cls(name)
        arguments = ", ".join(f"{field.name} := ?" for field in fields(geometry))
        values = [getattr(geometry, field.name) for field in fields(geometry)]
        connection.execute(f"CALL nvme_simulate(?, {arguments})", [disk.target, *values])
        connection.execute("CALL nvme_format(?)", [disk.target])
        return disk

    def path(self, file: str) -> str:
        return f"nvme://{self.target}/{file}"

    def files(self, connection: duckdb.DuckDBPyConnection) -> set[str]:
        rows = connection.execute("SELECT name FROM nvme_files(?)", [self.target]).fetchall()
        return {name for (name,) in rows}

    def events(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Writes, deallocations and flushes so far: the power can go before the first and after each."""
        return connection.execute("SELECT events FROM nvme_simulate(?)", [self.target]).fetchone()[0]

    def read(self, connection: duckdb.DuckDBPyConnection, first: int, lbas: int) -> bytes:
        """LBAs as they are. Raises duckdb.IOException when one of them cannot be read."""
        query = "SELECT content FROM nvme_simulate(?, read := ?, lbas := ?)"
        return connection.execute(query, [self.target, first, lbas]).fetchone()[0]

    def capacity(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Bytes that the device has now."""
        return connection.execute("SELECT capacity FROM nvme_simulate(?)", [self.target]).fetchone()[0]

    def enlarge(self, connection: duckdb.DuckDBPyConnection, bytes_more: int, grow: bool) -> None:
        """The device, and the volume too, or not yet."""
        size = self.capacity(connection) + bytes_more
        connection.execute("CALL nvme_simulate(?, grow := ?)", [self.target, size])
        if grow:
            row = connection.execute("CALL nvme_grow(?)", [self.target]).fetchone()
            if row[1] != size:
                raise RuntimeError(f"{self.target} has {row[1]} bytes and not {size}")

    def inject(self, connection: duckdb.DuckDBPyConnection, fault: str, at: int) -> None:
        connection.execute(FAULT, [self.target, fault, at])

    def cut(
        self, connection: duckdb.DuckDBPyConnection, events: int, seed: int, survivor: str
    ) -> tuple[Disk, Counter]:
        """What a power cut after that many events leaves, and what became of the writes in flight."""
        disk = Disk(survivor)
        row = connection.execute(CUT, [self.target, events, seed, disk.target]).fetchone()
        names = ("units survived", "units lost", "units turned into garbage", "writes torn")
        return disk, Counter(dict(zip(names, row[3:7], strict=True)))
