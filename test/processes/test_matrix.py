"""Two processes, every operation, every way of naming the target: each pair works or is refused, undamaged.

A holds a target in some state. B tries every operation on it, one after the other; what works leaves it as it
was. Then A goes on, commits and closes, and a third process looks at what is there. When something is
damaged, the operations are tried again one by one, so that the table shows which of them it was.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import duckdb
import operations
import pytest
import rawduck
from machine import MIB, Throttle, file_system, locks_on, throttle
from operations import EXCLUSIVE, NOTHING, REFUSED, SHARED, WORKS, Operation, Scratch
from places import (
    ALL_WAYS,
    BACKING_FILE,
    OF_A_FILE,
    OTHER_LOOPS,
    PARTITIONS,
    VOLUME_BYTES,
    Place,
    place,
)
from workers import Answer, Crashed, Worker

#: An operation beside a process that lives is answered at once; nothing is there to be waited for.
ANSWER_SECONDS = 20
ROWS = 1000
#: Instead of an operation's name, where a scene went wrong as a whole.
ALTOGETHER = ""
NOT_TRIED = "not tried"
STOCK_BYTES_LEAST = 17 * MIB


@dataclass(frozen=True)
class State:
    """What A does. `begin` is carried out at once; `stays` stays in progress, because the disk is stopped."""

    name: str
    held: str
    begin: tuple[str, ...] = ()
    stays: str = ""
    #: What the disk is stopped for. Those that write come to it twice, and only then have it for themselves.
    stopped: str = "read"
    end: tuple[str, ...] = ()
    #: Rows that A's transactions add.
    adds: int = 0
    empties: bool = False


def _attached(name: str, path: str, read_only: bool) -> State:
    attach = f"ATTACH '{path}' AS x" + (" (READ_ONLY)" if read_only else "")
    if read_only:
        return State(name, SHARED, (attach, "FROM x.t LIMIT 1"), end=("SELECT sum(v) FROM x.t", "DETACH x"))
    begin = (attach, "INSERT INTO x.t VALUES (5000)", "BEGIN", "INSERT INTO x.t VALUES (5001)")
    return State(name, EXCLUSIVE, begin, end=("COMMIT", "INSERT INTO x.t VALUES (5002)", "DETACH x"), adds=3)


VOLUME = "nvme://{t}"
CLOSED = State(
    "nobody",
    NOTHING,
    (f"ATTACH '{VOLUME}/x.duckdb' AS x", "INSERT INTO x.t VALUES (5000)", "DETACH x"),
    adds=1,
)
VOLUME_STATES = (
    CLOSED,
    _attached("attach rw", f"{VOLUME}/x.duckdb", False),
    _attached("attach ro", f"{VOLUME}/x.duckdb", True),
    State(
        "cp in",
        EXCLUSIVE,
        # One of whose threads waits in the kernel, which can be seen from outside.
        begin=("SET nvme_engine = 'posix'",),
        stays=f"CALL nvme_copy('{{source}}', '{VOLUME}/in.bin')",
        stopped="write",
        end=("RESET nvme_engine",),
    ),
    State("cp out", SHARED, stays=f"CALL nvme_copy('{VOLUME}/kept.bin', '{{held_out}}', overwrite := true)"),
    State("check", SHARED, stays="SELECT * FROM nvme_check('{t}')"),
    State("repair", EXCLUSIVE, stays="SELECT * FROM nvme_check('{t}', repair := true)"),
    State("rm", EXCLUSIVE, stays=f"CALL nvme_remove('{VOLUME}/spare.bin')", stopped="write"),
    State("ls", SHARED, stays="SELECT * FROM nvme_files('{t}')"),
    State("format", EXCLUSIVE, stays="CALL nvme_format('{t}', force := true)", stopped="write", empties=True),
)
STOCK_STATES = (
    State("nobody", NOTHING, ("ATTACH '{t}' AS x", "INSERT INTO x.t VALUES (5000)", "DETACH x"), adds=1),
    _attached("stock rw", "{t}", False),
    _attached("stock ro", "{t}", True),
    _attached("direct rw", "direct://{t}", False),
    _attached("direct ro", "direct://{t}", True),
)
STOCK_WAYS = tuple(OF_A_FILE)


def volume_pairs() -> list:
    """`make test` tries every state with one way, and every way with one state."""
    held = [(state, way) for state in VOLUME_STATES for way in ALL_WAYS]
    # With nobody there, the disk of a partition may be formatted, and the other way round.
    held = [(state, way) for state, way in held if way not in PARTITIONS or state != VOLUME_STATES[0]]
    # A file or device with a loop device over it is not formatted.
    held = [(state, way) for state, way in held if not (state.empties and way in OTHER_LOOPS[:2])]
    usual = (VOLUME_STATES[1], ALL_WAYS[0])
    return [
        pytest.param(state, way, marks=() if state is usual[0] or way == usual[1] else (pytest.mark.long,))
        for state, way in held
    ]


@dataclass
class Ground:
    """What the scenes of this module share."""

    folder: Path
    disk: str
    volume: Path
    stock: Path
    scratch: Scratch
    slow: dict[str, Throttle]


@pytest.fixture(scope="module")
def ground(tmp_path_factory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("matrix")
    scratch = Scratch(folder / "source.bin", folder)
    scratch.source.write_bytes(bytes(range(256)) * 4096)
    with file_system(folder, 1024 * MIB) as (mount_point, disk):
        made = Ground(mount_point, disk, folder / "volume.img", folder / "stock.img", scratch, {})
        make_volume(made.volume, scratch.source)
        make_stream(scratch.stream, folder / "other.img")
        make_stock_file(made.stock)
        yield made


def make_volume(path: Path, blob: Path) -> None:
    with rawduck.connect() as con:
        con.execute("CALL nvme_format(?, size := ?)", [str(path), str(VOLUME_BYTES)])
        con.execute(f"ATTACH 'nvme://{path}/x.duckdb' AS x")
        con.execute(f"CREATE TABLE x.t AS SELECT range AS v FROM range({ROWS})")
        con.execute("DETACH x")
        for name in ("kept.bin", "spare.bin"):
            con.execute("CALL nvme_copy(?, ?)", [str(blob), f"nvme://{path}/{name}"])


def make_stream(path: Path, volume: Path) -> None:
    with rawduck.connect() as con:
        con.execute("CALL nvme_format(?, size := ?)", [str(volume), str(VOLUME_BYTES)])
        con.execute(f"ATTACH 'nvme://{volume}/y.duckdb' AS y")
        con.execute("CREATE TABLE y.t AS SELECT range AS v FROM range(10)")
        con.execute("DETACH y")
        con.execute(f"CALL nvme_snapshot('nvme://{volume}/y.duckdb', 's')")
        con.execute("CALL nvme_send(?, ?)", [f"nvme://{volume}/y.duckdb@s", str(path)])
    volume.unlink()


def make_stock_file(path: Path) -> None:
    with duckdb.connect(str(path)) as con:
        con.execute("SET force_compression = 'uncompressed'")
        con.execute("CREATE TABLE filler AS SELECT range AS v FROM range(3000000)")
        con.execute(f"CREATE TABLE t AS SELECT range AS v FROM range({ROWS})")
    assert path.stat().st_size > STOCK_BYTES_LEAST


class Crew:
    """Three processes that live through many scenes. One that dies is replaced."""

    def __init__(self) -> None:
        self.members: list[Worker] = []
        self.renew()

    def renew(self) -> None:
        self.close()
        self.members = [Worker() for _ in range(3)]
        for worker in self.members:
            worker.wait_until_ready()

    def close(self) -> None:
        for worker in self.members:
            worker.close()


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    made = Crew()
    yield made
    made.close()


class Scene:
    """One state of A, and one place."""

    def __init__(self, ground: Ground, crew: Crew, state: State, where: Place, stock: bool) -> None:
        self._ground, self._state, self._place, self._stock = ground, state, where, stock
        self._holder, self._other, self._third = crew.members
        self._rows_before_b = ROWS + state.adds

    def _fill(self, statement: str) -> str:
        scratch = self._ground.scratch
        return statement.format(
            t=self._place.holder, source=scratch.source, held_out=scratch.folder / "held.bin"
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """A has it. At the end it goes on, and whatever it does then has to work."""
        self._holder.run(*(self._fill(statement) for statement in self._state.begin or ("SELECT 1",)))
        with throttle(self._place.disk) if self._state.stays else nullcontext() as slow:
            if slow:
                slow.join(self._holder.pid)
                slow.set(self._state.stopped, 1)
                self._holder.send("run", statements=[self._fill(self._state.stays)])
                wait_until_it_waits(self._holder, self._place, self._state.stopped)
            try:
                yield
            finally:
                if slow:
                    slow.set(self._state.stopped, None)
            if slow:
                answer = self._holder.receive()
                assert answer.ok, f"A's {self._state.name} failed: {answer.error}"
        if self._state.end:
            self._holder.run(*(self._fill(statement) for statement in self._state.end))

    def try_one(self, operation: Operation) -> str:
        """The mark of a pair: as expected, or what was wrong with it."""
        self._other_limit = time.monotonic() + ANSWER_SECONDS
        answer = operation.do(self._other, self._place, self._ground.scratch)
        if time.monotonic() > self._other_limit:
            return f"took longer than {ANSWER_SECONDS} s"
        expected = operation.expected(self._state.held)
        if operation.asks and self._is_there_to_be_asked():
            expected = WORKS
        found = WORKS if answer.ok else REFUSED
        if found != expected:
            return f"{found}, and not {expected}: {answer.error}"
        return found if found == WORKS else self._wrong_message(operation, answer) or found

    def _is_there_to_be_asked(self) -> bool:
        """A writer that does nothing at the moment, of a target that is the same under both names."""
        idle = self._state.held == EXCLUSIVE and not self._state.stays
        return idle and self._place.way not in (*OTHER_LOOPS, BACKING_FILE)

    def _wrong_message(self, operation: Operation, answer: Answer) -> str:
        names = {str(Path(name)) for name in self._place.names} | {
            Path(name).name for name in self._place.names
        }
        if not any(name in answer.error for name in names):
            return f"the message does not name the target: {answer.error}"
        if operation.name == "mount" and self._state.held == EXCLUSIVE and not self._stock:
            return "" if "busy" in answer.error else f"not refused by the kernel: {answer.error}"
        if not operation.foreign and not re.search(operations.ADVICE, answer.error):
            return f"the message does not say what to do: {answer.error}"
        return ""

    def lock_of_stock(self) -> list[str]:
        """DuckDB's own lock, where A holds one."""
        if not self._state.name.startswith("stock"):
            return []
        return [lock for lock in locks_on(self._place.holder) if f" {self._holder.pid} " in lock]

    def third_process_is_kept_out(self) -> None:
        answer = self._third.ask("run", statements=[f"ATTACH '{self._place.holder}' AS y"])
        assert not answer.ok, "a third process opened the database for writing"

    def try_all(self, chosen: tuple[Operation, ...]) -> dict[str, str]:
        with self.held():
            lock = self.lock_of_stock()
            assert bool(lock) == self._state.name.startswith("stock")
            marks = {}
            for operation in chosen:
                marks[operation.name] = self.try_one(operation)
                if broken(marks[operation.name]):
                    break  # the target is not what it was; the rest is tried on another one
            assert self.lock_of_stock() == lock, "DuckDB's lock on its file is gone"
            if lock:
                self.third_process_is_kept_out()
        return marks

    def look_afterwards(self, formatted: bool) -> None:
        """By a third process. `formatted`: an operation that was expected to work has emptied the target."""
        target = self._place.holder
        if not self._stock or formatted:
            findings = self._third.run(f"SELECT * FROM nvme_check('{target}') WHERE severity <> 'ok'")
            assert findings == []
        if self._state.empties or formatted:
            assert self._third.run(f"SELECT * FROM nvme_files('{target}')") == []
            return
        path = target if self._stock else f"nvme://{target}/x.duckdb"
        self._third.run(f"ATTACH '{path}' AS x (READ_ONLY)")
        rows = self._third.run("SELECT count(*), sum(v) FILTER (v < 5000) FROM x.t WHERE v >= 0")
        self._third.run("DETACH x")
        assert rows == [[self._rows_before_b, ROWS * (ROWS - 1) // 2]], rows
        if not self._stock:
            kept = f"SELECT md5(content::BLOB) FROM read_blob('nvme://{target}/kept.bin')"
            assert self._third.run(kept) == self._third.run(
                kept.replace(f"nvme://{target}/kept.bin", str(self._ground.scratch.source))
            )


def wait_until_it_waits(worker: Worker, where: Place, operation: str) -> None:
    """Until its operation has come to the disk, which is stopped: what it reads first, it reads by itself."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        assert not worker.answered(), "the operation did not stay in progress"
        if worker.has_open(where.holder) and worker.waits_in(operation):
            return
        time.sleep(0.01)
    raise AssertionError("the operation never came to the disk")


def run_scene(ground: Ground, crew: Crew, state: State, way: str, chosen, stock: bool) -> dict[str, str]:
    """Marks of the operations; those that are left out would come after one that wrongly worked."""
    template = ground.stock if stock else ground.volume
    with ExitStack() as stack:
        where = stack.enter_context(place(way, template, ground.folder, ground.disk))
        scene = Scene(ground, crew, state, where, stock)
        every = (
            operations.on_stock_file(where, state.held) if stock else operations.on_volume(where, state.held)
        )
        tried = tuple(operation for operation in every if chosen is None or operation.name in chosen)
        try:
            marks = scene.try_all(tried)
            if not any(broken(mark) for mark in marks.values()):
                formatted = state.held == NOTHING and any(
                    o.name.startswith("format") and o.expected(state.held) == WORKS for o in tried
                )
                scene.look_afterwards(formatted)
        except (AssertionError, Crashed) as error:
            crew.renew()
            marks = {ALTOGETHER: str(error)}
        return {**{operation.name: marks.get(operation.name, NOT_TRIED) for operation in tried}, **marks}


def fill_row(ground: Ground, crew: Crew, state: State, way: str, stock: bool) -> dict[str, str]:
    """All operations on one target; after something has gone wrong, each on one of its own."""
    marks = run_scene(ground, crew, state, way, None, stock)
    if ALTOGETHER not in marks and NOT_TRIED not in marks.values():
        return marks
    row = {}
    for name in (name for name in marks if name != ALTOGETHER):
        alone = run_scene(ground, crew, state, way, {name}, stock)
        row[name] = alone.get(ALTOGETHER) or alone[name]
    return row


def broken(mark: str) -> bool:
    """What had to be refused was done, so that the target is not what it was."""
    return mark.startswith(f"{WORKS}, and not")


def as_expected(marks: dict[str, str]) -> bool:
    return set(marks.values()) <= {WORKS, REFUSED}


def report(node: pytest.Item, table: str, state: State, way: str, row: dict[str, str]) -> None:
    node.user_properties.append(("matrix", {"table": table, "state": state.name, "way": way, "row": row}))
    wrong = {name: mark for name, mark in row.items() if not as_expected({name: mark})}
    assert not wrong, "\n".join(f"A: {state.name}, B: {name}, {way}: {mark}" for name, mark in wrong.items())


@pytest.mark.parametrize(("state", "way"), volume_pairs(), ids=lambda value: getattr(value, "name", value))
def test_volume(state, way, ground, crew, request):
    row = fill_row(ground, crew, state, way, stock=False)
    report(request.node, "volume", state, way, row)


@pytest.mark.parametrize("way", STOCK_WAYS)
@pytest.mark.parametrize("state", STOCK_STATES, ids=lambda state: state.name)
def test_stock_file(state, way, ground, crew, request):
    row = fill_row(ground, crew, state, way, stock=True)
    report(request.node, "file of stock DuckDB", state, way, row)
