"""Damages what a power cut has left, and repairs it: what loses nothing goes on as a life of its own, what
cannot be repaired must be refused, reported and left as it is."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import duckdb
from disk import Disk
from lanes import ABSENT, Lane
from metadata import Metadata, Superblock
from verify import Broken, known_states, match, state_of
from workload import History, Plan, connect

#: Of the devices that a cut leaves.
DAMAGED_SHARE, REPAIRED_SHARE, REFUSED_SHARE = 0.3, 0.4, 0.25


def findings(connection: duckdb.DuckDBPyConnection, disk: Disk, repair: bool = False) -> list[tuple]:
    """Severity, what, detail and repair."""
    query = f"SELECT severity, what, detail, repair FROM nvme_check(?, repair := {repair})"
    return connection.execute(query, [disk.target]).fetchall()


class Damage:
    """To one device that a cut has left."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        disk: Disk,
        plan: Plan,
        draw: random.Random,
        counts: Counter,
    ) -> None:
        self._connection, self._disk, self._plan = connection, disk, plan
        self._draw, self._counts = draw, counts
        self._metadata = Metadata(connection, disk, plan.geometry)

    def lose_nothing(self, start_sequence: int) -> None:
        """One superblock may be damaged, and the volume repaired, damaged or not."""
        if self._draw.random() < DAMAGED_SHARE:
            self._damage_one_superblock(start_sequence)
        if self._draw.random() < REPAIRED_SHARE:
            self._repair()
            if self._draw.random() < DAMAGED_SHARE:
                self._damage_one_superblock(start_sequence)

    def _damage_one_superblock(self, start_sequence: int) -> None:
        copies = self._metadata.superblocks()
        harmless = self._without_the_only_way(harmless_copies(copies, start_sequence), copies)
        if harmless:
            self._damage_superblock(self._draw.choice(harmless))
            self._counts["superblocks damaged"] += 1

    def _without_the_only_way(self, numbers: list[int], copies: list[Superblock | None]) -> list[int]:
        """On a larger device, what is found without superblock 0 is the copy at its end."""
        at_end = self._metadata.at_end()
        is_larger = self._metadata.end_lbas() != self._metadata.copy_lbas(1)
        needed = is_larger and (not at_end or not copies[0] or at_end.content != copies[0].content)
        return [number for number in numbers if not (needed and number == 0)]

    def _damage_superblock(self, number: int) -> None:
        self._damage_copy(self._metadata.copy_lbas(number))

    def _damage_copy(self, lbas: range) -> None:
        """Unless a life before has left it damaged: a bit that changes twice is whole again."""
        fault = self._draw.choice(("corruption", "read_error"))
        while self._metadata.is_superblock(lbas):
            self._disk.inject(self._connection, fault, self._draw.choice(lbas))

    def _repair(self) -> None:
        done = [row for row in findings(self._connection, self._disk, repair=True) if row[1] == "repair"]
        left = [row for row in findings(self._connection, self._disk) if row[0] != "ok" or row[3]]
        if left:
            raise Broken("unopenable", f"after a repair: {left}")
        self._counts["repairs"] += bool(done)
        self._counts["unfinished records dropped"] += any("unfinished" in row[2] for row in done)


def harmless_copies(copies: list[Superblock | None], start_sequence: int) -> list[int]:
    """Which superblock may be damaged. Not the only one; and not the newer of two that differ when an earlier
    life has left it: nobody was told of what it names, but that life's successor has seen it."""
    if None in copies:
        return []
    newest = max(copies, key=lambda copy: copy.sequence)
    settled = copies[0].content == copies[1].content or newest.sequence > start_sequence
    return [number for number in (0, 1) if settled or copies[number] is not newest]


def is_named(file: str, names: list[str]) -> bool:
    """Is it one of these files, or a database whose log is?"""
    return any(name == file or name.startswith(f"{file}.") for name in names)


def names_lba(text: str, lba: int) -> bool:
    """Does a message tell of a read of this LBA?"""
    return any(int(first) <= lba <= int(last) for first, last in re.findall(r"LBA (\d+) to (\d+)", text))


class Refusal(Damage):
    """Damage that takes something with it, to a device that is given up afterwards."""

    def __init__(self, *device, history: History, at: int) -> None:
        super().__init__(*device)
        self._history, self._at = history, at

    def run(self) -> None:
        self._draw.choice((self._both_superblocks, self._log_record, self._page, self._data))()

    def _both_superblocks(self) -> None:
        copies = [self._metadata.copy_lbas(number) for number in (0, 1)]
        for lbas in (*copies, self._metadata.end_lbas()):
            self._damage_copy(lbas)
        self._counts["volumes with both superblocks damaged"] += 1
        self._nothing_changes(lambda: self._refuses(lambda: findings(self._connection, self._disk, True)))
        self._nothing_changes(lambda: self._refuses(self._attach_for_writing))

    def _log_record(self) -> None:
        records = self._metadata.records()
        if not records:
            return
        record = self._draw.choice(records)
        # Of the last one a wrong bit cannot be told from a write that was cut short.
        if record is records[-1] or self._draw.random() < 0.5:
            lba = record.lba + self._draw.randrange(record.lbas)
            self._disk.inject(self._connection, "read_error", lba)
        else:
            while record in self._metadata.records():  # the bit may lie behind its last byte
                lba = record.lba + self._draw.randrange(record.lbas)
                self._disk.inject(self._connection, "corruption", lba)
        self._counts["log records damaged"] += 1
        first, second = self._metadata.superblocks()
        if first == second and self._draw.random() < 0.5:  # which alone would be repaired
            self._damage_superblock(self._draw.choice(self._without_the_only_way([0, 1], [first, second])))
        if not self._is_undecided(self._errors()):
            raise Broken("lost", f"{record} of the log is damaged, and errors are {self._errors()}")
        self._is_only_readable()

    def _page(self) -> None:
        """A metadata page is damaged: it concerns the files that the check names, and no others."""
        with connect(self._plan) as writer:  # so that there is a checkpoint of what the cut has left
            writer.execute(f"COPY (SELECT 1) TO '{self._disk.path('written.csv')}'")
        pages = self._metadata.pages()
        if not pages:  # the volume was empty when that mount began its checkpoint
            return
        lba = self._draw.choice(self._draw.choice(pages))
        self._disk.inject(self._connection, self._draw.choice(("corruption", "read_error")), lba)
        self._counts["metadata pages damaged"] += 1
        errors = self._errors()
        if "metadata" not in errors or any(
            what != "metadata" and not what.startswith("file ") for what in errors
        ):
            raise Broken("lost", f"LBA {lba} of a metadata page is damaged, and errors are {errors}")
        named = [what.removeprefix("file ") for what in errors if what != "metadata"]
        self._counts["files of damaged metadata pages"] += len(named)
        self._nothing_changes(self._is_not_repaired)
        self._nothing_changes(lambda: self._refuses(self._attach_for_writing))
        self._nothing_changes(
            lambda: self._read_lanes(self._is_allowed, lambda file, _: is_named(file, named))
        )

    def _data(self) -> None:
        """An LBA of a file becomes unreadable, often of what was written to a log last."""
        query = (
            "SELECT name, size, unnest(extent_list, recursive := true) FROM nvme_files(?) "
            "WHERE size >= ? ORDER BY ALL"
        )
        lba_size = self._metadata.lba_size
        extents = self._connection.execute(query, [self._disk.target, lba_size]).fetchall()
        if not extents:
            return
        logs = [extent for extent in extents if ".wal" in extent[0]]
        name, size, offset, first, lbas = self._draw.choice(logs or extents)
        lbas = min(lbas, (size - offset) // lba_size)
        if lbas <= 0:
            return
        lba = first + (lbas - 1 if self._draw.random() < 0.7 else self._draw.randrange(lbas))
        self._disk.inject(self._connection, "read_error", lba)
        self._counts["data LBAs made unreadable"] += 1
        # A snapshot may have the same.
        holders = sorted(file for file, _, _, start, count in extents if start <= lba < start + count)
        errors = self._errors()
        if self._is_undecided(errors):
            self._counts["of the last record's data"] += 1
            detail = next(row[2] for row in findings(self._connection, self._disk) if row[1] == "log")
            if f"LBA {lba} to" not in detail or not any(holder in detail for holder in holders):
                raise Broken("unopenable", f"LBA {lba} of {name} is not named: {detail}")
            self._is_only_readable()
        elif sorted(errors) not in ([], [f"file {holder}" for holder in holders]):
            raise Broken("unopenable", f"LBA {lba} of {name} cannot be read, and errors are {errors}")
        else:
            self._nothing_changes(
                lambda: self._read_lanes(self._is_allowed, lambda _, text: names_lba(text, lba))
            )

    def _errors(self) -> list[str]:
        return [row[1] for row in findings(self._connection, self._disk) if row[0] == "error"]

    def _is_undecided(self, errors: list[str]) -> bool:
        """The log is damaged. Of files as they were before that, the space may have been used again since."""
        return "log" in errors and all(what == "log" or what.startswith("file ") for what in errors)

    def _is_only_readable(self) -> None:
        self._nothing_changes(self._is_not_repaired)
        self._nothing_changes(lambda: self._refuses(self._attach_for_writing))
        # Space that was freed since may hold anything, and any error will do.
        self._nothing_changes(lambda: self._read_lanes(self._was_once, lambda *_: True))

    def _is_not_repaired(self) -> None:
        rows = findings(self._connection, self._disk, repair=True)
        if repaired := [row for row in rows if row[1] == "repair" or row[3]]:
            raise Broken("unopenable", f"a damaged volume was repaired: {repaired}")

    def _is_allowed(self, lane: Lane, found: str) -> None:
        match(lane, found, self._history, self._at)

    def _was_once(self, lane: Lane, found: str) -> None:
        """The state of some moment, not later than that of the cut."""
        if lane.is_export or found == ABSENT:
            return
        latest = self._history.allowed(lane, self._at).stop - 1
        if not any(steps <= latest for steps in known_states(lane, found)):
            raise Broken("resurrected", f"lane {lane.name} of a damaged volume: {found}")

    def _read_lanes(self, judge: Callable[[Lane, str], None], excused: Callable[[str, str], bool]) -> None:
        """Has what can be read judged. Of the rest, by file and error, there must be an excuse."""
        files = self._disk.files(self._connection)
        for database in sorted({lane.database for lane in self._plan.lanes}):
            lanes = [lane for lane in self._plan.lanes if lane.database == database]
            file = f"{database}.duckdb" if database else lanes[0].file
            if file not in files or f"{file}.wal.checkpoint" in files:  # DuckDB merges that, which writes
                continue
            with connect(self._plan) as reader:
                try:
                    if database:
                        reader.execute(f"ATTACH '{self._disk.path(file)}' AS {database} (READ_ONLY)")
                    found = {lane.name: state_of(reader, self._disk, lane) for lane in lanes}
                except (duckdb.Error, Broken) as error:
                    if not excused(file, str(error)):
                        raise Broken("unopenable", f"{file}: {error}") from error
                    continue
            for lane in lanes:
                judge(lane, found[lane.name])

    def _attach_for_writing(self) -> None:
        with connect(self._plan) as writer:
            writer.execute(f"ATTACH '{self._disk.path('a.duckdb')}' AS a")

    def _refuses(self, action: Callable[[], object]) -> None:
        try:
            action()
        except duckdb.Error:
            return
        raise Broken("lost", "a damaged volume is taken for a whole one")

    def _nothing_changes(self, action: Callable[[], object]) -> None:
        before = self._disk.events(self._connection)
        action()
        if self._disk.events(self._connection) != before:
            raise Broken("lost", "a damaged volume was written to")
