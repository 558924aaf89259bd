"""Streams of `rawduck send` in Ceph."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
import rawduck
from ceph_support import connect, names
from class_protocol import Pool

PROGRAM = str(Path(sys.executable).with_name("rawduck"))
MIB = 1024**2
OBJECT_BYTES = 16 * MIB
ROWS = 3_000_000
STATE = "SELECT count(*), sum(hash(i, s)) FROM x.t"


@pytest.fixture
def volume(tmp_path):
    """Two snapshots of a database whose whole stream needs several objects."""
    path = f"nvme://{tmp_path}/volume.img/sales.duckdb"
    with rawduck.connect() as con:
        con.execute("CALL nvme_format(?, size := '512MB')", [f"{tmp_path}/volume.img"])
        con.execute(f"ATTACH '{path}' AS x")
        con.execute(f"CREATE TABLE x.t AS SELECT hash(range) AS i, 'row ' || range AS s FROM range({ROWS})")
        con.execute("CHECKPOINT x")
        con.execute("CALL nvme_snapshot(?, 'monday')", [path])
        con.execute("INSERT INTO x.t VALUES (1, 'since monday')")
        con.execute("CALL nvme_snapshot(?, 'tuesday')", [path])
    return path


@pytest.fixture
def copy(tmp_path):
    path = f"nvme://{tmp_path}/copy.img/sales.duckdb"
    with rawduck.connect() as con:
        con.execute("CALL nvme_format(?, size := '512MB')", [f"{tmp_path}/copy.img"])
    return path


def state(path: str) -> tuple:
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
        return con.execute(STATE).fetchone()


def program(cluster, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "CEPH_CONF": str(cluster.conf)}
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=120
    )


def test_there_and_back(cluster, con, prefix, volume, copy):
    for name, options in (("monday", ()), ("tuesday", ("--since", "monday"))):
        sent = program(cluster, "send", f"{volume}@{name}", *options, "-o", f"{prefix}/{name}")
        assert sent.returncode == 0, sent.stderr
    objects = con.execute(
        "SELECT filename, size FROM read_blob(?) ORDER BY 1", [f"{prefix}/monday.*"]
    ).fetchall()
    assert [file for file, _ in objects] == [f"{prefix}/monday.{i:06}" for i in range(len(objects))]
    assert len(objects) >= 3
    assert {size for _, size in objects[:-1]} == {OBJECT_BYTES}
    assert names(con, f"{prefix}/tuesday.*") == [f"{prefix}/tuesday.000000"]
    for name in ("monday", "tuesday"):
        verified = program(cluster, "receive", "--verify", "-i", f"{prefix}/{name}")
        assert f"sales.duckdb@{name}" in verified.stdout, verified.stderr
        received = program(cluster, "receive", copy, "-i", f"{prefix}/{name}")
        assert received.returncode == 0, received.stderr
        assert state(copy) == state(f"{volume}@{name}")


def test_a_stream_replaces_nothing(con, data_prefix, volume):
    con.execute("CALL nvme_send(?, ?)", [f"{volume}@monday", f"{data_prefix}/s"])
    before = names(con, f"{data_prefix}/**")
    with pytest.raises(duckdb.Error, match=rf"{data_prefix}/s.000000: it exists already"):
        con.execute("CALL nvme_send(?, ?)", [f"{volume}@tuesday", f"{data_prefix}/s"])
    assert names(con, f"{data_prefix}/**") == before
    assert con.execute("SELECT snapshot FROM nvme_verify(?)", [f"{data_prefix}/s"]).fetchone() == (
        "sales.duckdb@monday",
    )


@pytest.mark.parametrize("missing", ["first", "middle", "last"])
def test_a_missing_object_is_noticed(cluster, con, data_prefix, volume, copy, missing):
    con.execute("CALL nvme_send(?, ?)", [f"{volume}@monday", f"{data_prefix}/s"])
    objects = names(con, f"{data_prefix}/s.*")
    lost = {"first": objects[0], "middle": objects[1], "last": objects[-1]}[missing]
    Pool(cluster.conf, cluster.keyring, "data").remove(lost.removeprefix("rados://data/"))
    with pytest.raises(duckdb.Error, match="there is no stream" if missing == "first" else "cut off"):
        con.execute("CALL nvme_receive(?, ?)", [f"{data_prefix}/s", copy])
    with pytest.raises(duckdb.Error):
        state(copy)


def test_objects_of_another_stream_behind_it_are_noticed(cluster, con, data_prefix, volume, copy):
    con.execute("CALL nvme_send(?, ?)", [f"{volume}@monday", f"{data_prefix}/s"])
    count = len(names(con, f"{data_prefix}/s.*"))
    name = f"{data_prefix}/s.{count:06}".removeprefix("rados://data/")
    Pool(cluster.conf, cluster.keyring, "data").write(name, b"of another stream")
    with pytest.raises(duckdb.Error, match="something follows on its end"):
        con.execute("CALL nvme_receive(?, ?)", [f"{data_prefix}/s", copy])


def test_a_send_that_is_interrupted_leaves_nothing(cluster, con, data_prefix, volume):
    environment = {**os.environ, "CEPH_CONF": str(cluster.conf)}
    command = [PROGRAM, "send", f"{volume}@monday", "-o", f"{data_prefix}/s"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as sender:
        deadline = time.monotonic() + 60
        while not names(con, f"{data_prefix}/s.*") and time.monotonic() < deadline:
            time.sleep(0.01)
        sender.send_signal(signal.SIGINT)
        sender.communicate(timeout=60)
    assert sender.returncode != 0
    assert names(con, f"{data_prefix}/s.*") == []


def test_settings_are_asked(cluster, data_prefix, volume):
    with connect(cluster) as con:
        con.execute("SET allowed_directories = ['rados://other/', 'nvme:///']")
        con.execute("SET enable_external_access = false")
        for statement in ("CALL nvme_send(?, ?)", "CALL nvme_receive(?, ?)"):
            arguments = [f"{volume}@monday", f"{data_prefix}/s"]
            with pytest.raises(duckdb.PermissionException):
                con.execute(statement, arguments if "send" in statement else arguments[::-1])


def test_without_the_extension_for_ceph(volume):
    with rawduck.connect() as con, pytest.raises(duckdb.Error, match=r"rawduck.connect\(ceph=True\)"):
        con.execute("CALL nvme_send(?, 'rados://data/s')", [f"{volume}@monday"])
