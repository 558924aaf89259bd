"""`rawduck send` and `receive`: backups of databases that are in use."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
import rawduck
from support import failed, file_names, kill_when_ready, one, run_cli, run_python, start_python, succeeded

PROGRAM = str(Path(sys.executable).with_name("rawduck"))
MIB = 1024**2
#: A query that shows which state a database has, whatever log it has beside it.
STATE = "SELECT count(*), sum(hash(i, s)) FROM {}.t"
#: Commits until it is told to make a snapshot, and says which state that has.
WRITER = """
target = sys.argv[1]
path = f"nvme://{target}/sales.duckdb"
connection.execute(f"ATTACH '{path}' AS x")
n = 1000000
for name in sys.stdin:
    name = name.strip()
    for _ in range(20):
        n += 1
        connection.execute(f"INSERT INTO x.t SELECT range, 'row ' || range FROM range({n}, {n + 100})")
    connection.execute("UPDATE x.t SET s = ? WHERE i % 5000 = 7", [name])
    if name == "tuesday":
        connection.execute("CHECKPOINT x")
    connection.execute("CALL nvme_snapshot(?, ?)", [path, name])
    print(*connection.execute("SELECT count(*), sum(hash(i, s)) FROM x.t").fetchone(), flush=True)
    connection.execute("INSERT INTO x.t VALUES (-1, 'after the snapshot')")
"""


@pytest.fixture
def source(new_target):
    """A volume with a database."""
    target = new_target("file-4096")
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{target.path('sales.duckdb')}' AS x")
        con.execute("CREATE TABLE x.t AS SELECT range AS i, md5(range::VARCHAR) AS s FROM range(400000)")
    return target


@pytest.fixture
def copy(new_target):
    return new_target("file-512")


def take(source, name: str) -> None:
    succeeded("snapshot", f"{source.path('sales.duckdb')}@{name}")


def change(source) -> None:
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{source.path('sales.duckdb')}' AS x")
        con.execute("UPDATE x.t SET s = 'changed' WHERE i = 1")


def state_of(path: str) -> tuple:
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
        return con.execute(STATE.format("x")).fetchone()


def content(path: str) -> bytes:
    with rawduck.connect() as con:
        return one(con, "SELECT content FROM read_blob(?)", path)


def stream(source, folder: Path, name: str, *options: str) -> bytes:
    file = folder / name
    succeeded("send", f"{source.path('sales.duckdb')}@{name}", "-o", str(file), *options)
    try:
        return file.read_bytes()
    finally:
        file.unlink()


def pipe(send: list[str], receive: list[str]) -> None:
    with subprocess.Popen([PROGRAM, "send", *send], stdout=subprocess.PIPE) as sender:
        received = subprocess.run(
            [PROGRAM, "receive", *receive], stdin=sender.stdout, capture_output=True, text=True, check=False
        )
        assert received.returncode == 0, received.stderr
        sender.stdout.close()
        assert sender.wait(60) == 0


def test_a_chain_while_somebody_commits(source, copy):
    path, to = source.path("sales.duckdb"), copy.path("copy.duckdb")
    states = {}
    with start_python(WRITER, source.name) as writer:
        for since, name in ((None, "monday"), ("monday", "tuesday"), ("tuesday", "wednesday")):
            print(name, file=writer.stdin, flush=True)
            states[name] = tuple(int(value) for value in writer.stdout.readline().split())
            pipe([f"{path}@{name}", *(["--since", since] if since else [])], [to])
            assert state_of(to) == states[name]
        pipe([f"{path}@latest"], [copy.path("latest.duckdb")])
        count = state_of(copy.path("latest.duckdb"))[0]
        assert count == states["wednesday"][0] + 1, "what was committed last is in what is sent as @latest"
        assert writer.poll() is None
    for name, state in states.items():
        assert state_of(f"{to}@{name}") == state
        assert content(f"{to}@{name}") == content(f"{path}@{name}")
    assert not [name for name in file_names(rawduck.connect(), copy) if "receiving" in name]
    assert "sound" in succeeded("check", copy.name)


def test_a_writer_can_begin_while_a_snapshot_is_sent(source, tmp_path):
    take(source, "monday")
    before = content(f"{source.path('sales.duckdb')}@monday")
    with subprocess.Popen(
        [PROGRAM, "send", f"{source.path('sales.duckdb')}@monday"], stdout=subprocess.PIPE
    ) as sender:
        begun = sender.stdout.read(100000)
        change(source)
        change(source)
        rest = sender.stdout.read()
    (tmp_path / "monday").write_bytes(begun + rest)
    succeeded("receive", str(tmp_path / "back.duckdb"), "-i", str(tmp_path / "monday"))
    assert (tmp_path / "back.duckdb").read_bytes() == before


def test_one_percent_is_read_of_what_changed_by_one_percent(new_target, tmp_path):
    target = new_target("file-4096", size="1G")
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{target.path('sales.duckdb')}' AS x")
        # Rows that do not compress, so that one in a hundred row groups is one block in a hundred.
        con.execute("CREATE TABLE x.t AS SELECT range AS i, hash(range) AS a FROM range(100 * 122880)")
        con.execute("CHECKPOINT x")
    take(target, "sunday")
    take(target, "monday")
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{target.path('sales.duckdb')}' AS x")
        con.execute("UPDATE x.t SET a = a + 1 WHERE i BETWEEN 50 * 122880 AND 51 * 122880 - 1")
        con.execute("CHECKPOINT x")
    take(target, "tuesday")
    # What a mount reads of metadata, and of both snapshots, is read for no difference, too.
    code = """
    query = "SELECT sum(bytes) FROM nvme_stats() WHERE operation = 'read'"
    for since, name in (("sunday", "monday"), ("monday", "tuesday")):
        connection.execute("CALL nvme_reset_stats()")
        send = "SELECT bytes FROM nvme_send(?, ?, since := ?)"
        sent = connection.execute(send, [f"{sys.argv[1]}@{name}", sys.argv[2] + name, since]).fetchone()[0]
        print(sent, int(connection.execute(query).fetchone()[0]))
    """
    output = run_python(code, target.path("sales.duckdb"), str(tmp_path / "s-"))
    nothing, metadata, sent, read = map(int, output.split())
    with rawduck.connect() as con:
        size = one(con, "SELECT size FROM nvme_files(?) WHERE name = 'sales.duckdb'", target.name)
    assert size > 50 * MIB
    assert sent < size * 0.03
    assert nothing == 0
    assert metadata < 16 * MIB
    assert sent <= read - metadata <= sent + 128 * 1024
    assert (tmp_path / "s-tuesday").stat().st_size < sent + 64 * 1024


def test_a_receiver_that_was_killed(source, copy, tmp_path):
    take(source, "monday")
    whole = stream(source, tmp_path, "monday")
    path = copy.path("copy.duckdb")
    with subprocess.Popen([PROGRAM, "receive", path], stdin=subprocess.PIPE) as receiver:
        receiver.stdin.write(whole[: len(whole) * 3 // 4])
        receiver.stdin.flush()
        time.sleep(0.5)
        receiver.kill()
        receiver.wait(60)
        receiver.stdin.close()
    with rawduck.connect() as con:
        assert "copy.duckdb.receiving" in file_names(con, copy)
        assert "copy.duckdb" not in file_names(con, copy)
    token = succeeded("receive", "--token", path).strip()
    rest = stream(source, tmp_path, "monday", "--resume", token)
    (tmp_path / "rest").write_bytes(rest)
    succeeded("receive", path, "-i", str(tmp_path / "rest"))
    assert content(path) == content(f"{source.path('sales.duckdb')}@monday")
    assert "sound" in succeeded("check", copy.name)


def test_what_was_cut_off_is_gone_on_with(source, copy, tmp_path):
    take(source, "monday")
    whole = stream(source, tmp_path, "monday")
    cut, path = tmp_path / "cut", copy.path("copy.duckdb")
    cut.write_bytes(whole[: len(whole) // 2])
    message = failed("receive", path, "-i", str(cut))
    assert "it was cut off" in message
    assert f"rawduck receive --token {path}" in message
    assert "cut off" in failed("receive", "--verify", "-i", str(cut))
    (part,) = json.loads(succeeded("receive", "--token", path, "--json"))
    assert part["snapshot"] == "sales.duckdb@monday"
    rest = stream(source, tmp_path, "monday", "--resume", part["token"])
    assert len(rest) < len(whole) * 0.6
    (tmp_path / "rest").write_bytes(rest)
    described = json.loads(succeeded("receive", "--verify", "--json", "-i", str(tmp_path / "rest")))
    assert described["resumed_from"] == part["token"]
    succeeded("receive", path, "-i", str(tmp_path / "rest"))
    assert state_of(path) == state_of(source.path("sales.duckdb"))
    assert "no receive was cut short" in failed("receive", "--token", path)


def test_what_was_cut_off_is_given_up(source, copy, tmp_path):
    take(source, "monday")
    cut, path = tmp_path / "cut", copy.path("copy.duckdb")
    cut.write_bytes(stream(source, tmp_path, "monday")[: MIB * 2])
    failed("receive", path, "-i", str(cut))
    take(source, "tuesday")
    whole = tmp_path / "whole"
    whole.write_bytes(stream(source, tmp_path, "tuesday"))
    assert f"rawduck receive --abort {path}" in failed("receive", path, "-i", str(whole))
    assert "sales.duckdb@monday" in succeeded("receive", "--abort", path)
    with rawduck.connect() as con:
        assert file_names(con, copy) == []
    succeeded("receive", path, "-i", str(whole))


def test_a_local_file(source, tmp_path):
    with start_python(WRITER, source.name) as writer:
        print("monday", file=writer.stdin, flush=True)
        writer.stdout.readline()
        path = f"{source.path('sales.duckdb')}@monday"
        pipe([path], [str(tmp_path / "back.duckdb")])
        assert (tmp_path / "back.duckdb.wal").exists(), "the log came, too"
        (tmp_path / "monday").write_bytes(stream(source, tmp_path, "monday"))
        assert "exists already" in failed(
            "receive", str(tmp_path / "back.duckdb"), "-i", str(tmp_path / "monday")
        )
        assert state_of(str(tmp_path / "back.duckdb")) == state_of(path)
    take(source, "tuesday")
    changes = tmp_path / "changes"
    changes.write_bytes(stream(source, tmp_path, "tuesday", "--since", "monday"))
    assert "what changed since" in failed("receive", str(tmp_path / "new.duckdb"), "-i", str(changes))
    cut = tmp_path / "cut"
    cut.write_bytes((tmp_path / "monday").read_bytes()[:-1])
    assert "was not made" in failed("receive", str(tmp_path / "new.duckdb"), "-i", str(cut))
    assert not list(tmp_path.glob("new.duckdb*"))


def test_refusals_say_what_to_do(source, copy, tmp_path):
    take(source, "monday")
    path = f"{source.path('sales.duckdb')}@monday"
    existing = tmp_path / "existing"
    existing.write_text("mine")
    assert "exists already" in failed("send", path, "-o", str(existing))
    assert existing.read_text() == "mine"
    assert "send sales.duckdb@latest" in failed("send", source.path("sales.duckdb"), "-o", "x")
    assert "friday" in failed("send", path, "--since", "friday", "-o", str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    assert "--output" in failed("send", path, "--json")
    assert "no stream of `rawduck send`" in failed("receive", copy.path("x.duckdb"), "-i", str(existing))
    assert "there is nothing" in failed("receive", copy.path("x.duckdb"), "-i", os.devnull)
    assert "give the path" in failed("receive")
    with rawduck.connect() as con:
        assert file_names(con, copy) == []
        with pytest.raises(Exception, match="is no descriptor"):
            con.execute("CALL nvme_send(?, 'fd:x')", [path])


@pytest.mark.parametrize("end", ["sends", "receives"])
def test_ctrl_c_while_the_other_end_does_nothing(source, copy, end):
    take(source, "monday")
    arguments = {
        "sends": ["send", f"{source.path('sales.duckdb')}@monday"],
        "receives": ["receive", copy.path("copy.duckdb")],
    }
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([PROGRAM, *arguments[end]], **pipes) as child:
        time.sleep(2)  # it waits for the pipe
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 130
        assert child.stderr.read() in (b"", b"rawduck: interrupted\n"), "and no traceback"
    change(source)


def test_nobody_reads_what_is_sent(source):
    take(source, "monday")
    with subprocess.Popen(
        [PROGRAM, "send", f"{source.path('sales.duckdb')}@monday"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as sender:
        sender.stdout.read(10)
        sender.stdout.close()
        assert sender.wait(60) == 2
        assert b"has ended" in sender.stderr.read()


def test_a_snapshot_of_the_same_name_is_no_base(source, copy, tmp_path):
    take(source, "monday")
    path, to = source.path("sales.duckdb"), copy.path("copy.duckdb")
    pipe([f"{path}@monday"], [to])
    succeeded("rm", f"{path}@monday")
    change(source)
    take(source, "monday")
    change(source)
    take(source, "tuesday")
    changes = tmp_path / "changes"
    changes.write_bytes(stream(source, tmp_path, "tuesday", "--since", "monday"))
    before = content(to)
    assert 'none of the snapshots of "copy.duckdb" here is that one (monday)' in failed(
        "receive", to, "-i", str(changes)
    )
    assert content(to) == before


def test_a_database_that_was_written_to_is_not_replaced(source, copy, tmp_path):
    take(source, "monday")
    path, to = source.path("sales.duckdb"), copy.path("copy.duckdb")
    pipe([f"{path}@monday"], [to])
    state_of(to)
    change(source)
    take(source, "tuesday")
    changes = tmp_path / "changes"
    changes.write_bytes(stream(source, tmp_path, "tuesday", "--since", "monday"))
    kill_when_ready(
        """
        connection.execute(f"ATTACH '{sys.argv[1]}' AS x; INSERT INTO x.t VALUES (-5, 'here')")
        print("ready", flush=True); time.sleep(60)
        """,
        to,
    )
    assert "has changed since it was monday" in failed("receive", to, "-i", str(changes))
    assert state_of(to)[0] == 400001
    assert run_cli("receive", to, "--overwrite", "-i", str(changes)).returncode == 0
    assert state_of(to) == state_of(f"{path}@tuesday")


def test_a_chain_is_received_where_it_came_from(source, tmp_path):
    """The snapshots are there still, and what was received in full lies elsewhere than the first of them."""
    path, whole, changes = source.path("sales.duckdb"), tmp_path / "whole", tmp_path / "changes"
    take(source, "monday")
    whole.write_bytes(stream(source, tmp_path, "monday"))
    change(source)
    take(source, "tuesday")
    changes.write_bytes(stream(source, tmp_path, "tuesday", "--since", "monday"))
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x; DELETE FROM x.t WHERE i > 100")
    assert "has changed since" in failed("receive", path, "-i", str(changes))
    succeeded("receive", path, "-i", str(whole), "--overwrite")
    assert "nothing to receive" in failed("receive", path, "-i", str(whole), "--overwrite")
    succeeded("receive", path, "-i", str(changes))
    assert state_of(path) == state_of(f"{path}@tuesday") != state_of(f"{path}@monday")


def test_attached_databases_are_left_alone(source, copy, con):
    take(source, "monday")
    con.execute(f"ATTACH '{copy.path('copy.duckdb')}' AS x; CREATE TABLE x.own AS SELECT 1")
    query = "CALL nvme_receive(?, ?, overwrite := true)"
    folder = Path(copy.name).parent
    con.execute("CALL nvme_send(?, ?)", [f"{source.path('sales.duckdb')}@monday", str(folder / "monday")])
    with pytest.raises(Exception, match="already open for writing in this process"):
        con.execute(query, [str(folder / "monday"), copy.path("copy.duckdb")])
    con.execute("FROM x.own")
    # Beside it, in the process that has the volume open for writing.
    con.execute(query, [str(folder / "monday"), copy.path("other.duckdb")])
    con.execute(f"ATTACH '{copy.path('other.duckdb')}' AS y (READ_ONLY)")
    assert con.execute(STATE.format("y")).fetchone()[0] == 400000


def test_a_volume_is_no_file_to_restore(con, tmp_path):
    """Nobody is told to make a volume of another name."""
    volume = tmp_path / "a.rawduck"
    con.execute("CALL nvme_format(?, size := '32M')", [str(volume)])
    (tmp_path / "stream").write_bytes(b"text")
    with pytest.raises(duckdb.Error, match="names a volume but no file on it"):
        con.execute("CALL nvme_receive(?, ?)", [str(tmp_path / "stream"), f"nvme://{volume}"])


def test_names_with_an_at(source, copy, tmp_path):
    """What has one in its name goes back to its name, and into directories with one."""
    path, file = source.path("old@2026/sales@old.duckdb"), tmp_path / "stream"
    succeeded("mv", source.path("sales.duckdb"), path)
    succeeded("snapshot", f"{path}@monday")
    succeeded("send", f"{path}@monday", "-o", str(file))
    for name in ("sales@old.duckdb", "new@2027/sales@old.duckdb", "new@2027/sales.duckdb"):
        succeeded("receive", copy.path(name), "-i", str(file))
        assert state_of(copy.path(name)) == state_of(path)
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x; DROP TABLE x.t")
    succeeded("receive", path, "-i", str(file), "--overwrite")
    assert state_of(path) == state_of(copy.path("sales@old.duckdb"))
    # But the name of a snapshot is taken for a mistake.
    for name in (f"{path}@monday", copy.path("sales.duckdb@old"), copy.path("sales@older.duckdb")):
        assert "name the database" in run_cli("receive", name, "-i", str(file)).stderr
