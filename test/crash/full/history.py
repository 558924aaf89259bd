"""One random history: databases on a small volume that is filled until it refuses, with kills, and emptied.

What the processes acknowledged is carried out in a shadow.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import rawduck
import shadow as sql
from life import Answer, Broken, Life
from rawduck.volumes import format_volume
from shadow import PAYLOAD, Shadow

#: Processes in which writes were refused. A volume below 160 MiB can be emptied by DROP TABLE after three
#: loads onto a full one, each in a new process (docs/devices.md, "A full volume").
FULL_LIVES_MAX = 3
TABLES_MAX = 4
PAYLOADS = (0, 0, 40, 1000, -1, -4, -40)
ROWS = (1, 100, 10_000, 100_000, 400_000)
#: One insert brings no more than that.
INSERT_BYTES_MAX = 24_000_000
#: Payloads of ever smaller commits, which no checkpoint makes smaller.
FILLS = (-60_000, -6_000, -600, -1)
SETTINGS = {
    "wal_autocheckpoint": ("16MB", "1MB", "10GB", "10GB"),
    "checkpoint_on_detach": ("ENABLED", "DISABLED"),
    "nvme_deallocate": ("auto", "on"),
}


@dataclass
class Database:
    name: str
    attached: bool = False
    #: It was there once, and must be.
    made: bool = False
    clone: bool = False
    #: What a process was about to do to it when it ended: done or not.
    maybe: list[str] = field(default_factory=list)


@dataclass
class Shape:
    """What a history is like; all from its seed."""

    megabytes: int
    lba: int
    databases: int
    lives: int
    steps: int


def shape_of(rng: random.Random) -> Shape:
    megabytes = rng.choice((16, 20, 24, 32, 48, 64))
    return Shape(megabytes, rng.choice((512, 4096)), rng.randint(1, 4), rng.randint(1, 3), rng.randint(6, 20))


class History:
    """The volume, and what is known of it."""

    def __init__(self, seed: str, target: Path, shape: Shape | None = None) -> None:
        self.rng = random.Random(seed)
        self.shape = shape or shape_of(self.rng)
        self.target = str(target)
        self.counts: Counter[str] = Counter()
        self.shadow = Shadow()
        self.databases = {f"d{n}": Database(f"d{n}") for n in range(self.shape.databases)}
        for name in self.databases:
            self.shadow.add(name)
        self.snapshots: dict[str, str] = {}  # the name of its schema, and its path
        self.files: dict[str, int] = {}  # other files, and how many rows they have
        self.numbers = 0
        self.keys = 0
        self.life: Life | None = None
        self.log: list[str] = []
        self.began = time.monotonic()
        with rawduck.connect() as connection:
            format_volume(connection, self.target, size=f"{self.shape.megabytes}M", lba_size=self.shape.lba)

    def path(self, file: str) -> str:
        return f"nvme://{self.target}/{file}"

    def database_path(self, name: str) -> str:
        return self.path(f"{name}.duckdb")

    def note(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:6.1f} {text}")

    # -- processes

    def begin_life(self, **settings: str) -> Life:
        chosen = {name: settings.get(name) or self.rng.choice(of) for name, of in SETTINGS.items()}
        # With it, a COPY that fails can hang for ever in DuckDB 2.0.0.
        chosen["async_threads"] = "0"
        chosen["temp_directory"] = self.path("tmp")
        chosen["memory_limit"] = "2GB"
        before = [f"SET {name} = '{value}'" for name, value in chosen.items()]
        self.note(f"process: {chosen['wal_autocheckpoint']}, {chosen['checkpoint_on_detach']}")
        self.life = Life({"threads": "2"}, [*before, PAYLOAD])
        self.counts["processes"] += 1
        return self.life

    def end_life(self) -> None:
        life, self.life = self.life, None
        for database in self.databases.values():
            database.attached = False
        if life:
            life.close()

    def begin_anew(self) -> None:
        self.end_life()
        self.begin_life()

    def kill_life(self) -> None:
        life, self.life = self.life, None
        for database in self.databases.values():
            database.attached = False
        if life:
            self.counts["kills"] += 1
            life.kill()

    # -- what is there

    def attach(self, name: str) -> bool:
        """Every database can be opened, however full the volume is, and has what was committed.

        False for a new one that was refused.
        """
        database = self.databases[name]
        if database.attached:
            return True
        answer = self.life.try_one(f"ATTACH '{self.database_path(name)}' AS {name}")
        if answer.refused and not database.made:
            self.judge(answer, f"ATTACH new {name}")
            self.life.try_one(f"CALL nvme_remove('{self.database_path(name)}')")
            return False
        if answer.error:
            raise Broken(f"stuck: {name} cannot be opened: {answer.error}")
        database.attached = database.made = True
        self.compare(name, database.maybe, payload=False)
        database.maybe = []
        return True

    def held(self, catalog: str, payload: bool) -> sql.Digest:
        tables = [row[0] for row in self.life.tell([sql.tables_of(catalog)])]
        digests = {table: sql.digest_of(f"{catalog}.{table}", payload) for table in tables}
        return {table: self.life.tell([digest])[0] for table, digest in digests.items()}

    def compare(self, name: str, maybe: list[str], payload: bool) -> None:
        """What a database or a snapshot holds with its shadow, before or after what was not acknowledged."""
        found, expected = self.held(name, payload), self.shadow.digest(name)
        if found == expected:
            return
        if maybe:
            self.shadow.apply(maybe)
            expected = self.shadow.digest(name)
            if found == expected:
                return
        raise Broken(f"lost: {name} has {found}, not {expected}, perhaps after {maybe}")

    def settle(self) -> None:
        """What was there when the last process ended is there."""
        files = {row[0] for row in self.life.tell([f"SELECT name FROM nvme_files('{self.target}')"])}
        taken = {row[0] for row in self.life.tell([f"SELECT path FROM nvme_snapshots('{self.target}')"])}
        self.require_all(files, taken)

    def require_all(self, files: set[str], taken: set[str]) -> None:
        missing = [path for path in self.snapshots.values() if path not in taken]
        missing += [name for name in self.files if name not in files]
        if missing:
            raise Broken(f"lost: {missing} are not there")

    # -- what was asked for

    def judge(self, answer: Answer, what: str, may_fail: tuple[str, ...] = ()) -> bool:
        """Whether it was done. Refusals for want of space are counted; nothing else may fail."""
        self.note(f"{what[:150]}: {'done' if answer.done else answer.error[:200] or 'killed'}")
        if answer.done:
            return True
        if answer.refused:
            self.counts["refused"] += 1
        elif answer.error and not any(text in answer.error for text in may_fail):
            raise Broken(f"{what}: {answer.error}")
        return False

    def change(self, changes: dict[str, list[str]], kill_after: float | None = None) -> None:
        """Statements for each of several databases, at the same time."""
        lanes = list(changes.values())
        killed = kill_after is not None
        answers = self.life.ask_and_kill(kill_after, *lanes) if killed else self.life.ask(*lanes)
        given_up = False
        for (name, statements), answer in zip(changes.items(), answers, strict=True):
            if self.judge(answer, "; ".join(statements)):
                self.shadow.apply(statements)
            elif not answer.error or answer.fatal:
                self.databases[name].maybe = statements
                given_up |= answer.fatal
        if killed:
            self.kill_life()
        elif given_up:
            self.counts["given up by DuckDB"] += 1
            self.end_life()

    def next_name(self, letter: str) -> str:
        self.numbers += 1
        return f"{letter}{self.numbers}"

    def close(self) -> None:
        with suppress(Broken):
            self.kill_life()
        self.shadow.close()
        Path(self.target).unlink(missing_ok=True)
