"""A volume becomes larger: online beside queries and commits, through the command line, killed in between."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import duckdb
import pytest
import rawduck
from support import CHILD_SECONDS, attach, failed, loop_device, one, run_cli, start_python, succeeded

MIB = 1024**2
FILL = "CREATE OR REPLACE TABLE {}.t{} AS SELECT range AS i, md5(range::VARCHAR) AS s FROM range(400000)"


def capacity(con, name) -> int:
    return one(con, "SELECT capacity FROM nvme_info(?)", name)


def fill(con, tables: int) -> None:
    for number in range(tables):
        con.execute(FILL.format("x", number) + "; CHECKPOINT x")


def problems(con, name) -> list[tuple]:
    return con.execute("SELECT * FROM nvme_check(?) WHERE severity <> 'ok'", [name]).fetchall()


def test_a_file_grows_beside_queries_and_commits(new_target, con):
    target = new_target("file-4096", "64M")
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.log (n BIGINT)")
    stop, failures, commits = threading.Event(), [], []

    def work(statement: str) -> None:
        cursor = con.cursor()
        try:
            while not stop.is_set():
                cursor.execute(statement).fetchall()
                commits.append(statement)
        except duckdb.Error as error:
            failures.append(error)

    statements = ("INSERT INTO x.log VALUES (1)", "SELECT sum(n) FROM x.log")
    threads = [threading.Thread(target=work, args=(statement,)) for statement in statements]
    for thread in threads:
        thread.start()
    for size in range(72, 136, 8):
        row = con.execute(f"CALL nvme_grow('{target.name}', size := '{size}M')").fetchone()
        assert row == (target.name, size * MIB, 8 * MIB)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    con.execute(FILL.format("x", 0) + "; CHECKPOINT x; " + FILL.format("x", 1))
    con.execute("DETACH x")
    assert Path(target.name).stat().st_size == 128 * MIB
    assert capacity(con, target.name) == 128 * MIB
    assert problems(con, target.name) == []
    attach(con, target, "x.duckdb", "(READ_ONLY)")
    assert one(con, "SELECT count(*) FROM x.log") == commits.count(statements[0])
    assert one(con, "SELECT count(*) + count(DISTINCT s) FROM x.t1") == 800000


def test_a_full_volume_grows_and_the_statement_that_failed_works(new_target, con):
    target = new_target("file-4096", "32M")
    attach(con, target, "x.duckdb")
    with pytest.raises(duckdb.Error, match="volume is full"):
        fill(con, 10)
    con.execute("DETACH x")
    con.execute(f"CALL nvme_grow('{target.name}', size := '200M')")
    attach(con, target, "x.duckdb")
    fill(con, 4)
    con.execute("DETACH x")
    assert problems(con, target.name) == []


def test_a_device_that_became_larger(tmp_path, con):
    image = tmp_path / "disk.img"
    with loop_device(image, 512, "64M") as device:
        con.execute(f"CALL nvme_format('{device}')")
        con.execute(f"ATTACH 'nvme://{device}/x.duckdb' AS x; CREATE TABLE x.t AS SELECT 1 AS i")
        os.truncate(image, 160 * MIB)
        losetup = shutil.which("losetup", path="/usr/sbin:/sbin:/usr/bin")
        subprocess.run([losetup, "--set-capacity", device], check=True)
        assert one(con, "SELECT growable FROM nvme_info(?)", device) == 96 * MIB
        con.execute("INSERT INTO x.t VALUES (2)")
        with pytest.raises(duckdb.Error, match="leave out"):
            con.execute(f"CALL nvme_grow('{device}', size := '160M')")
        assert con.execute(f"CALL nvme_grow('{device}')").fetchone() == (device, 160 * MIB, 96 * MIB)
        fill(con, 6)
        con.execute("DETACH x")
        assert problems(con, device) == []
        assert capacity(con, device) == 160 * MIB
        os.truncate(image, 100 * MIB)
        subprocess.run([losetup, "--set-capacity", device], check=True)
        sizes = f"the volume has {160 * MIB} bytes, and its target only {100 * MIB}"
        with pytest.raises(duckdb.IOException, match=sizes):
            con.execute(f"ATTACH 'nvme://{device}/x.duckdb' AS x")
        assert sizes in failed("info", device)
        assert run_cli("check", device).returncode == 1
        os.truncate(image, 160 * MIB)
        subprocess.run([losetup, "--set-capacity", device], check=True)
        assert capacity(con, device) == 160 * MIB


def test_the_command(new_target):
    target = new_target("file-4096", "64M")
    assert (
        succeeded("grow", target.name)
        == f"Not grown: {target.name} is as large as its target already: 64.0 MiB\n"
    )
    done = succeeded("grow", target.name, "--size", "96M")
    assert done == f"Grown {target.name}: 96.0 MiB, 32.0 MiB more than before\n"
    os.truncate(target.name, 128 * MIB)
    assert "32.0 MiB more, which `rawduck grow` would use" in " ".join(succeeded("info", target.name).split())
    checked = " ".join(succeeded("check", target.name).split())
    assert "uses the rest" in checked
    assert "sound" in checked
    assert "has 134217728 bytes already" in failed("grow", target.name, "--size", "100M")
    assert "cannot shrink" in failed("grow", target.name, "--size", "64M")
    assert "Choose a smaller --size" in failed("grow", target.name, "--size", "900000G")
    assert Path(target.name).stat().st_size == 128 * MIB
    assert "32.0 MiB more than before" in succeeded("grow", target.name)
    assert "missing" in failed("grow", "/tmp/missing.rawduck")


def test_it_needs_the_volume_for_itself_but_for_readers_beside_it(new_target):
    file_target = new_target("file-4096", "48M")
    path = file_target.path("x.duckdb")
    with rawduck.connect(path) as writer:
        writer.execute("CREATE TABLE t AS SELECT 1 AS i")
        assert "close it there first" in failed("grow", file_target.name, "--size", "64M")
        with rawduck.connect() as same_process:
            same_process.execute(f"ATTACH '{path}@latest' AS latest (READ_ONLY)")
            reader = """
connection.execute(f"ATTACH '{sys.argv[1]}@latest' AS y (READ_ONLY)")
print("ready", flush=True)
sys.stdin.readline()
print(connection.execute("SELECT sum(i) FROM y.t").fetchone()[0], flush=True)
connection.execute("DETACH y")
connection.execute(f"ATTACH '{sys.argv[1]}@latest' AS y (READ_ONLY)")
print(connection.execute("SELECT sum(i), max(length(s)) FROM y.more").fetchone(), flush=True)
"""
            with start_python(reader, path) as child:
                assert child.stdout.readline() == "ready\n", child.stderr.read()
                writer.execute(f"CALL nvme_grow('{file_target.name}', size := '240M')")
                # More than was free before.
                writer.execute(
                    "CREATE TABLE more AS SELECT range AS i, repeat(md5(range::VARCHAR), 250) AS s "
                    "FROM range(8000)"
                )
                writer.execute("CHECKPOINT")
                output, errors = child.communicate("\n", timeout=CHILD_SECONDS)
                assert output == "1\n(31996000, 8000)\n", errors


GROWER = """
connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
connection.execute("CREATE TABLE IF NOT EXISTS x.t (n BIGINT)")
target, size = sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for step in range(1, 1000):
    connection.execute("INSERT INTO x.t VALUES (?)", [step])
    connection.execute(f"CALL nvme_grow('{target}', size := '{size + step}M')")
    print(step, flush=True)
"""


def test_killed_while_it_grows(new_target, con):
    """The volume has a size that was acknowledged, or the next; what was committed is there."""
    draw = random.Random(5)
    target = new_target("file-4096", "64M")
    size, rows = 64, 0
    for _ in range(12):
        with start_python(GROWER, target.path("x.duckdb"), target.name, str(size)) as child:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            time.sleep(draw.uniform(0.0, 0.15))
            child.kill()
            output, _ = child.communicate(timeout=CHILD_SECONDS)
        steps = [int(line) for line in output.splitlines(keepends=True) if line.endswith("\n")]
        last = steps[-1] if steps else 0
        found = capacity(con, target.name) // MIB
        assert found in (size + last, size + last + 1)
        assert problems(con, target.name) == []
        attach(con, target, "x.duckdb", "(READ_ONLY)")
        count = one(con, "SELECT count(*) FROM x.t")
        assert rows + last <= count <= rows + last + 1
        con.execute("DETACH x")
        size, rows = -(-Path(target.name).stat().st_size // MIB), count
        assert con.execute(f"CALL nvme_grow('{target.name}')").fetchone()[1] == size * MIB
    assert size > 64
