"""What is on a drive whose power went: `power_pull.py LOG SIZE ACKNOWLEDGED RESULTS ENGINE`, outside
the guest.

LOG is what QEMU's blklogwrites noted of the writes and flushes that reached the emulated drive of SIZE
bytes until the guest was killed, in the format of Linux' dm-log-writes. Images are made as a power cut
leaves them: at the moment of the kill without anything that was not flushed, and at random moments before
it with any part of that. Each must hold the transactions of commit_on_nvme.py up to one of them, at the kill
all that were acknowledged. Appends a line `PASS name` or `FAIL name: reason` per check to RESULTS; the
names begin with ENGINE.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import rawduck

FLUSH, FUA, DISCARD = 1, 2, 4
LBA = 512
SUPER = struct.Struct("<QQQI")
MAGIC, VERSION = 0x6A736677736872, 1
ENTRY = struct.Struct("<QQQQ")
CUTS = 30
ACKNOWLEDGED_LEAST = 100


@dataclass
class Write:
    """Of so many LBAs from one on. Without data: zeros."""

    lba: int
    lbas: int
    data: bytes
    fua: bool


def read_log(path: Path) -> list[Write | None]:
    """Writes in the order of their completion, and None for a flush."""
    log = path.read_bytes()
    magic, version, _, sector_bytes = SUPER.unpack_from(log)
    if (magic, version, sector_bytes) != (MAGIC, VERSION, LBA):
        raise ValueError(f"{path} is no log of writes in sectors of {LBA} bytes")
    events: list[Write | None] = []
    at = LBA
    # The number of entries in the header is that of the last flush but one; behind the last entry are zeros.
    while at + LBA <= len(log):
        lba, lbas, flags, _ = ENTRY.unpack_from(log, at)
        if not flags and not lbas:
            break
        if lbas:
            data = b"" if flags & DISCARD else log[at + LBA : at + LBA + lbas * LBA]
            events.append(Write(lba, lbas, data, bool(flags & FUA)))
        if flags & FLUSH:
            events.append(None)
        at += LBA + (0 if flags & DISCARD else lbas * LBA)
    return events


class Drive:
    """An image that grows by events: what is durable, and what was not flushed yet."""

    def __init__(self, image: Path, size: int) -> None:
        self._file = os.open(image, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, size)
        self.pending: list[Write] = []

    def apply(self, event: Write | None) -> None:
        if event is None:
            for write in self.pending:
                self._put(self._file, write, range(write.lbas))
            self.pending = []
        elif event.fua:
            self._put(self._file, event, range(event.lbas))
        else:
            self.pending.append(event)

    def cut(self, image: Path, draw: random.Random | None) -> None:
        """The image after the power went; `draw` decides what else survives, LBA by LBA."""
        with open(image, "wb") as copy:
            os.lseek(self._file, 0, os.SEEK_SET)
            while block := os.read(self._file, 1 << 20):
                if block.count(0) == len(block):
                    copy.seek(len(block), os.SEEK_CUR)
                else:
                    copy.write(block)
            copy.truncate(os.fstat(self._file).st_size)
            for write in self.pending if draw else []:
                kind = draw.random()
                kept = range(write.lbas) if kind < 0.4 else range(0)
                if kind > 0.8:
                    kept = [lba for lba in range(write.lbas) if draw.random() < 0.5]
                copy.flush()
                self._put(copy.fileno(), write, kept)

    @staticmethod
    def _put(file: int, write: Write, lbas) -> None:
        for lba in lbas:
            data = write.data[lba * LBA : (lba + 1) * LBA] or bytes(LBA)
            os.pwrite(file, data, (write.lba + lba) * LBA)


def transactions(image: Path) -> int:
    """How many are on the image; -1 before its tables were. Raises what is wrong."""
    with rawduck.connect() as connection:
        try:
            files = connection.execute("SELECT name FROM nvme_files(?)", [str(image)]).fetchall()
        except duckdb.Error as error:
            if "is not a rawduck volume" in str(error):
                return -1
            raise
        damage = connection.execute(
            "SELECT what, detail FROM nvme_check(?) WHERE severity = 'error'", [str(image)]
        )
        if found := damage.fetchall():
            raise AssertionError(f"nvme_check: {found}")
        if ("p.duckdb",) not in files:
            return -1
        connection.execute(f"ATTACH 'nvme://{image}/p.duckdb' AS p (BLOCK_SIZE 16384)")
        tables = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'p'"
        ).fetchall()
        if len(tables) < 2:
            return -1
        last = connection.execute("SELECT number FROM p.last").fetchone()[0]
        rows = connection.execute(
            "SELECT count(DISTINCT number), count(*), coalesce(max(number), -1), "
            "count(*) FILTER (hash != md5(number::VARCHAR) OR filler != repeat('x', 100)) FROM p.t"
        ).fetchone()
        expected = (last + 1, last + 1 + 399 * (last // 10 + 1), last, 0)
        if rows != expected:
            raise AssertionError(f"after transaction {last} the table has {rows}, not {expected}")
        connection.execute("INSERT INTO p.t VALUES (-1, 'it takes further writes', '')")
        connection.execute("DETACH p")
        return last + 1


class Pulled:
    """Checks of one drive."""

    def __init__(
        self, events: list[Write | None], size: int, folder: Path, results: Path, engine: str
    ) -> None:
        self._events = events
        self._drive = Drive(folder / "drive.img", size)
        self._image = folder / "cut.img"
        self._results = results
        self._engine = engine
        self._applied = 0
        self._durable = -1

    def at(self, moment: int, seed: int) -> None:
        """Power cut after that many events: nothing that was durable before is missing."""
        while self._applied < moment:
            self._drive.apply(self._events[self._applied])
            self._applied += 1
        self._drive.cut(self._image, None)
        durable = transactions(self._image)
        self._drive.cut(self._image, random.Random(seed))
        found = transactions(self._image)
        if not self._durable <= durable <= found:
            raise AssertionError(f"{self._durable}, then {durable} durable, then {found} transactions")
        self._durable = durable

    def acknowledged(self, count: int) -> None:
        """At the kill, without what was not flushed. A guest that hardly committed shows nothing."""
        if count < ACKNOWLEDGED_LEAST:
            raise AssertionError(f"only {count} transactions were acknowledged before the guest was killed")
        if self._durable < count:
            raise AssertionError(f"{count} transactions were acknowledged, {self._durable} are there")

    def check(self, name: str, body, *arguments: int) -> None:
        name = f"{self._engine}: {name}"
        line = f"PASS {name}"
        try:
            body(*arguments)
        except (AssertionError, duckdb.Error) as error:
            line = f"FAIL {name}: {error}".replace("\n", " ")
        with open(self._results, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def main() -> None:
    log, size, acknowledged, results, engine = sys.argv[1:]
    events = read_log(Path(log))
    count = len(Path(acknowledged).read_text().splitlines())
    flushes = sum(event is None for event in events)
    print(
        f"{engine}: power pulled after {len(events)} events, {flushes} of them flushes, {count} transactions"
    )
    seed = random.randrange(2**32)
    moments = sorted(random.Random(seed).sample(range(len(events)), min(CUTS, len(events))))
    with tempfile.TemporaryDirectory() as folder:
        pulled = Pulled(events, int(size), Path(folder), Path(results), engine)
        for moment in [*moments, len(events)]:
            pulled.check(
                f"power cut after event {moment} with seed {seed + moment}", pulled.at, moment, seed + moment
            )
        pulled.check("all that was acknowledged before the power was pulled", pulled.acknowledged, count)


if __name__ == "__main__":
    main()
