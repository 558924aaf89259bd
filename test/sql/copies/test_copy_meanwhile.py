"""What others do at both ends of a copy while it runs, and COPY over databases that are attached."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest
import rawduck
from support import file_names, one, run_python, start_python

MIB = 1024**2
PLACES = ("plain", "direct", "volume")


class Destination:
    """A name in one of the places to which a copy can go."""

    def __init__(self, place: str, name: str, folder: Path, target) -> None:
        self.local = None if place == "volume" else folder / name
        schemes = {"plain": "", "direct": "direct://"}
        self.path = target.path(name) if place == "volume" else f"{schemes[place]}{folder / name}"
        self._name, self._target = name, target

    def is_being_made(self, con) -> bool:
        """Whether there is a file of a copy that is not finished."""
        start = f"{self._name}.nvme_copy-"
        if self.local:
            return any(name.startswith(start) for name in os.listdir(self.local.parent))
        return any(name.startswith(start) for name in file_names(con, self._target))


@pytest.fixture(params=PLACES)
def destinations(request, tmp_path, new_target):
    """Makes destinations: one for each try."""
    target = new_target("file-4096", size="2G") if request.param == "volume" else None
    return (Destination(request.param, f"x{i}.duckdb", tmp_path, target) for i in itertools.count())


def sparse_file(path: Path, size: int) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def make_database(path: str) -> None:
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x; CREATE TABLE x.t AS SELECT range AS v FROM range(1000); DETACH x")


class Intrusion:
    """A copy that is still running after something else was done meanwhile."""

    def __init__(self, running: Future, done, destination: Destination) -> None:
        self.running, self.done, self.destination = running, done, destination


def while_copying(con, tmp_path, destinations, meanwhile, overwrite=False, prepare=None, pool=None):
    """Does something while a copy runs. A copy that was too fast for that is made again, longer."""
    for size in (64 * MIB, 256 * MIB, 1024 * MIB):
        source, destination = sparse_file(tmp_path / "source", size), next(destinations)
        if prepare:
            prepare(destination.path)
        with rawduck.connect() as copying:
            query = "SELECT bytes FROM nvme_copy(?, ?, overwrite := ?)"
            parameters = [str(source), destination.path, overwrite]
            running = pool.submit(lambda: copying.execute(query, parameters).fetchone()[0])  # noqa: B023
            while not running.done() and not destination.is_being_made(con):
                pass
            done, failure = None, None
            try:
                done = meanwhile(destination)
            except duckdb.Error as error:
                failure = error
            in_time = not running.done()
            with suppress(duckdb.Error):
                running.result()
        if in_time:
            return Intrusion(running, done or failure, destination)
    pytest.skip("every copy was faster than what was to happen while it runs")


@pytest.fixture
def pool():
    with ThreadPoolExecutor(1) as made:
        yield made


def test_a_database_made_meanwhile_is_left_alone(destinations, con, tmp_path, pool):
    def make(destination):
        connection = rawduck.connect()
        connection.execute(f"ATTACH '{destination.path}' AS x; CREATE TABLE x.t AS SELECT 42 AS v")
        return connection

    intrusion = while_copying(con, tmp_path, destinations, make, pool=pool)
    with intrusion.done as owner:
        with pytest.raises(duckdb.IOException, match=r"while the copy ran|write-ahead log"):
            intrusion.running.result()
        owner.execute("INSERT INTO x.t VALUES (43); DETACH x")
    assert not intrusion.destination.is_being_made(con)
    con.execute(f"ATTACH '{intrusion.destination.path}' AS x (READ_ONLY)")
    assert one(con, "SELECT sum(v) FROM x.t") == 85


def test_what_is_overwritten_cannot_be_attached_meanwhile(destinations, con, tmp_path, pool):
    def attach(destination):
        with rawduck.connect() as connection:
            connection.execute(f"ATTACH '{destination.path}' AS x; INSERT INTO x.t VALUES (1)")

    intrusion = while_copying(
        con, tmp_path, destinations, attach, overwrite=True, prepare=make_database, pool=pool
    )
    assert isinstance(intrusion.done, duckdb.Error)
    assert intrusion.running.result() >= 64 * MIB


def test_a_log_that_appears_meanwhile_is_not_replayed_into_the_copy(destinations, con, tmp_path, pool):
    def begin_log(destination):
        with rawduck.connect() as connection:
            connection.execute(f"COPY (SELECT 'log') TO '{destination.path}.wal' (FORMAT csv)")

    intrusion = while_copying(
        con, tmp_path, destinations, begin_log, overwrite=True, prepare=make_database, pool=pool
    )
    with pytest.raises(duckdb.IOException, match="write-ahead log"):
        intrusion.running.result()
    assert not intrusion.destination.is_being_made(con)


def test_two_copies_to_one_name_do_not_mix(destinations, con, tmp_path, pool):
    other = tmp_path / "other"
    other.write_bytes(b"x" * MIB)

    def copy(destination):
        with rawduck.connect() as connection:
            connection.execute("FROM nvme_copy(?, ?)", [str(other), destination.path]).fetchall()

    intrusion = while_copying(con, tmp_path, destinations, copy, pool=pool)
    assert intrusion.done is None
    with pytest.raises(duckdb.IOException, match="while the copy ran"):
        intrusion.running.result()
    assert content(con, intrusion.destination.path) == other.read_bytes()
    assert not intrusion.destination.is_being_made(con)


def content(con, path: str) -> bytes:
    return one(con, f"SELECT content FROM read_blob('{path}')")


def test_of_copies_that_race_the_one_that_succeeds_is_there(destinations, con, tmp_path):
    sources = [tmp_path / "a", tmp_path / "b"]
    for source, letter, size in zip(sources, b"ab", (300_000, 100_000), strict=True):
        source.write_bytes(bytes([letter]) * size)
    connections = [rawduck.connect(), rawduck.connect()]

    def copy(k, barrier, path, succeeded):
        barrier.wait()
        with suppress(duckdb.Error):
            connections[k].execute("FROM nvme_copy(?, ?)", [str(sources[k]), path]).fetchall()
            succeeded.append(k)

    for destination in itertools.islice(destinations, 30):
        barrier, succeeded = threading.Barrier(2), []
        threads = [
            threading.Thread(target=copy, args=(k, barrier, destination.path, succeeded)) for k in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(succeeded) == 1
        assert content(con, destination.path) == sources[succeeded[0]].read_bytes()
        assert not destination.is_being_made(con)
    for connection in connections:
        connection.close()


COPY_ONCE = """
connection.execute("FROM nvme_copy(?, ?)", sys.argv[1:]).fetchall()
"""


@pytest.mark.parametrize("fits", [True, False])
def test_nobody_sees_an_unfinished_copy_on_a_volume(
    new_target, con, tmp_path, monkeypatch, pause_at_locks, fits
):
    """Who did would have the volume locked, so that the copy gets neither its name nor is removed."""
    target, paused = new_target("file-4096", size="32M"), tmp_path / "paused"
    con.execute("FROM nvme_copy(?, ?)", [str(sparse_file(tmp_path / "a", 1)), target.path("a")]).fetchall()
    source = tmp_path / "x.duckdb"
    make_database(str(source))
    if not fits:
        os.truncate(source, 64 * MIB)
    monkeypatch.setenv("LD_PRELOAD", str(pause_at_locks))
    monkeypatch.setenv("PAUSE_FOLDER", str(tmp_path))
    seen = []
    with start_python(COPY_ONCE, str(source), target.path("x.duckdb")) as child:
        while child.poll() is None:
            if paused.exists():
                seen.append(file_names(con, target))
                paused.unlink()
        assert (child.returncode == 0) is fits
    assert seen
    for names in [*seen, file_names(con, target)]:
        assert names == (["a", "x.duckdb"] if fits else ["a"])


def test_the_lock_of_a_log_that_stock_writes_is_kept(con, tmp_path):
    """Only looking for a log must not open it."""
    con.execute(f"ATTACH '{tmp_path / 'x.duckdb'}' AS x; CREATE TABLE x.t AS SELECT 1 AS v")
    log = tmp_path / "x.duckdb.wal"

    def locks() -> list[str]:
        end = f":{log.stat().st_ino} "
        return [line.split(":", 1)[1] for line in Path("/proc/locks").read_text().splitlines() if end in line]

    before = locks()
    assert before
    for names in ((str(tmp_path / "x.duckdb"), str(tmp_path / "y")), (str(log), str(tmp_path / "x.duckdb"))):
        with pytest.raises(duckdb.Error):
            con.execute("FROM nvme_copy(?, ?, overwrite := true)", names).fetchall()
    assert locks() == before


def test_a_copy_over_a_symbolic_link_replaces_what_it_leads_to(con, tmp_path):
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    con.execute("FROM nvme_copy(?, ?, overwrite := true)", [str(tmp_path / "source"), str(tmp_path / "link")])
    con.fetchall()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_bytes() == b"new"
    (tmp_path / "folder" / "file").unlink()
    with pytest.raises(duckdb.IOException, match="symbolic link that leads to no file"):
        con.execute("FROM nvme_copy(?, ?)", [str(tmp_path / "source"), str(tmp_path / "link")]).fetchall()


LEAVE_A_LOG = """
connection.execute(f"ATTACH '{sys.argv[1]}' AS x; INSERT INTO x.t VALUES (1000)")
os._exit(0)
"""


@pytest.mark.parametrize("scheme", ["", "direct://"])
def test_the_log_of_a_database_behind_a_symbolic_link(con, tmp_path, scheme):
    """It lies beside the database, not beside the link."""
    database, link = tmp_path / "x.duckdb", tmp_path / "link.duckdb"
    make_database(str(database))
    link.symlink_to(database)
    run_python(LEAVE_A_LOG, f"{scheme}{link}")
    assert (tmp_path / "x.duckdb.wal").stat().st_size > 0
    copy = f"FROM nvme_copy('{scheme}{link}', '{tmp_path / 'copy.duckdb'}')"
    with pytest.raises(duckdb.IOException, match=r"write-ahead log beside it.*x\.duckdb\.wal"):
        con.execute(copy).fetchall()
    con.execute(f"ATTACH '{link}' AS x; CHECKPOINT x; DETACH x")
    con.execute(copy).fetchall()
    con.execute(f"ATTACH '{tmp_path / 'copy.duckdb'}' AS copied (READ_ONLY)")
    assert one(con, "SELECT count(*) FROM copied.t") == 1001


TRY_TO_OPEN = """
try:
    duckdb.connect(sys.argv[1]).execute("CREATE TABLE intruder (i INTEGER)")
    print("written")
except duckdb.IOException:
    print("refused")
"""


def test_stock_that_reads_the_source_meanwhile_keeps_its_lock(con, tmp_path, pool):
    destinations = (Destination("plain", f"x{i}.duckdb", tmp_path, None) for i in itertools.count())
    source = tmp_path / "source"
    make_database(str(tmp_path / "small.duckdb"))

    def read(_):
        stock = duckdb.connect()
        stock.execute(f"ATTACH '{source}' AS x (READ_ONLY)")
        return stock

    # A database with much behind it, so that the copy takes its time.
    def prepare(_):
        size = source.stat().st_size
        source.write_bytes((tmp_path / "small.duckdb").read_bytes())
        with source.open("r+b") as file:
            file.truncate(size)

    intrusion = while_copying(con, tmp_path, destinations, read, prepare=prepare, pool=pool)
    with intrusion.done as stock:
        assert run_python(TRY_TO_OPEN, str(source)) == "refused"
        assert one(stock, "SELECT count(*) FROM x.t") == 1000


@pytest.fixture(params=["", "(READ_ONLY)"], ids=["rw", "ro"])
def attached(request, tmp_path, new_target, con):
    """Gives the path of a database that is attached, on a volume or behind direct://."""

    def attach(place: str) -> str:
        target = new_target("file-4096") if place == "volume" else None
        path = Destination(place, "x.duckdb", tmp_path, target).path
        make_database(path)
        con.execute(f"ATTACH '{path}' AS x {request.param}")
        return path

    return attach


OVERWRITING = [
    "COPY (SELECT 1) TO '{path}' (FORMAT csv, USE_TMP_FILE {tmp})",
    "COPY (SELECT 1) TO '{path}' (FORMAT parquet, USE_TMP_FILE {tmp})",
    "COPY (SELECT 1 AS v, 2 AS w) TO '{folder}' (FORMAT csv, PARTITION_BY (v), OVERWRITE)",
]


@pytest.mark.parametrize("tmp", ["true", "false"])
@pytest.mark.parametrize("statement", OVERWRITING[:2], ids=["csv", "parquet"])
@pytest.mark.parametrize("place", ["direct", "volume"])
def test_copy_does_not_replace_an_attached_database(attached, con, statement, tmp, place):
    path = attached(place)
    with rawduck.connect() as other, pytest.raises(duckdb.IOException, match=r"x\.duckdb.*open|lock"):
        other.execute(statement.format(path=path, tmp=tmp))
    check_attached(con, path)


def test_copy_does_not_remove_an_attached_database(attached, con):
    path = attached("volume")
    statement = OVERWRITING[2].format(folder=path[: path.rindex("/")])
    with rawduck.connect() as other, pytest.raises(duckdb.IOException, match=r"cannot remove.*x\.duckdb"):
        other.execute(statement)
    check_attached(con, path)


def check_attached(con, path) -> None:
    """The database that is attached is the one that lies there."""
    with suppress(duckdb.Error):  # where it is attached READ_ONLY
        con.execute("INSERT INTO x.t VALUES (1000)")
    rows = one(con, "SELECT count(*) FROM x.t")
    con.execute("DETACH x")
    con.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
    assert one(con, "SELECT count(*) FROM x.t") == rows >= 1000
