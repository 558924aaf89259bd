"""Answers that the helper keeps: the same request about the same version of an object runs once."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import time
from dataclasses import replace

import duckdb
import pytest
from ceph_support import User, connect, rados
from class_protocol import Pool, Reply, Request
from rawduck.ceph.cluster import class_directory

OBJECTS = 6
COLUMNS = [("i", "BIGINT"), ("g", "VARCHAR")]
SUM = Request(COLUMNS, ["sum(i)"], aggregate=True, use_cache=True)


@pytest.fixture(scope="module")
def helper_runs(cluster):
    """Operations of a cluster that has just started may be sent twice, and the first answer is lost."""
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    with connect(cluster) as connection:
        connection.execute("SET rados_offload = 'always'")
        for number in range(30):
            write(connection, f"rados://data/warm/{number}.parquet", number)
        cluster.wait(lambda: run(connection, query_of("rados://data/warm"))[1:] == (0, 30), "all answer")


@pytest.fixture
def objects(con, helper_runs, data_prefix):
    for number in range(OBJECTS):
        write(con, f"{data_prefix}/{number}.parquet", number * 1000)
    con.execute("SET rados_offload = 'always'")
    return data_prefix


@pytest.fixture
def pool(cluster):
    opened = Pool(cluster.conf, cluster.keyring, "data")
    yield opened
    opened.close()


def write(connection, path: str, first: int) -> None:
    rows = f"SELECT i, 'g' || (i % 3)::VARCHAR AS g FROM range({first}, {first + 1000}) r(i)"
    connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")


def query_of(prefix: str, condition: str = "true") -> str:
    return (
        f"SELECT g, sum(i), count(*) FROM read_parquet('{prefix}/*.parquet') WHERE i >= 0 AND {condition} "
        "GROUP BY g ORDER BY g"
    )


def run(connection, query: str) -> tuple[list, int, int]:
    """The rows, and of how many objects the answer was computed and kept."""
    rows = connection.execute(query).fetchall()
    scan = "SELECT answered, cached FROM rados_scans() WHERE offloaded ORDER BY scan DESC LIMIT 1"
    answered, cached = connection.execute(scan).fetchone()
    return rows, answered - cached, cached


def read(connection, query: str) -> list:
    connection.execute("SET rados_offload = 'never'")
    rows = connection.execute(query).fetchall()
    connection.execute("SET rados_offload = 'always'")
    return rows


def test_the_second_run_is_answered_from_what_was_kept(con, objects):
    query = query_of(objects)
    expected = read(con, query)
    assert run(con, query) == (expected, OBJECTS, 0)
    for _ in range(3):
        assert run(con, query) == (expected, 0, OBJECTS)
    costs = "SELECT osd_read_bytes, osd_cpu_us FROM rados_scans() WHERE offloaded ORDER BY scan DESC LIMIT 2"
    assert con.execute(costs).fetchall() == [(0, 0), (0, 0)]


def test_rows_are_kept_as_well(con, objects):
    query = f"SELECT i, g FROM read_parquet('{objects}/*.parquet') WHERE i % 100 = 7"
    expected = read(con, query)
    assert run(con, query) == (expected, OBJECTS, 0)
    assert run(con, query) == (expected, 0, OBJECTS)


def test_another_client_gets_what_was_kept(con, cluster, objects):
    query = query_of(objects)
    expected, *_ = run(con, query)
    with connect(cluster) as other:
        other.execute("SET rados_offload = 'always'")
        assert run(other, query) == (expected, 0, OBJECTS)


def test_each_iteration_of_a_recursive_query_counts_alone(con, helper_runs, data_prefix):
    """The scan runs once for each iteration, and only one object has keys of the join."""
    for number in range(3):
        rows = f"SELECT i AS a, i + 1 AS b FROM range({number * 10}, {number * 10 + 10}) r(i)"
        con.execute(f"COPY ({rows}) TO '{data_prefix}/{number}.parquet' (FORMAT parquet)")
    steps = f"SELECT a, max(b) AS b FROM read_parquet('{data_prefix}/*') GROUP BY a"
    query = (
        "WITH RECURSIVE w(n) AS (SELECT 0::BIGINT UNION ALL "
        f"SELECT s.b FROM w JOIN ({steps}) s ON s.a = w.n WHERE w.n < 8) SELECT max(n), count(*) FROM w"
    )
    con.execute("SET rados_offload = 'always'")
    assert con.execute(query).fetchall() == [(8, 9)]
    scan = "SELECT objects, answered, why FROM rados_scans() ORDER BY scan DESC LIMIT 1"
    objects, answered, _ = con.execute(scan).fetchone()
    assert answered > objects  # the record has all iterations
    con.execute("SET rados_offload = 'auto'")
    assert con.execute(query).fetchall() == [(8, 9)]
    assert "kept the earlier answers" in con.execute(scan).fetchone()[2]


def test_auto_asks_for_what_was_kept(con, objects):
    """Until most objects have changed: then it is decided as for any other query."""
    query = query_of(objects)
    expected, *_ = run(con, query)
    con.execute("SET rados_offload = 'auto'")
    for _ in range(3):
        assert run(con, query) == (expected, 0, OBJECTS)
    why = "SELECT why FROM rados_scans() WHERE pushed LIKE '%sum(i)%' ORDER BY scan DESC LIMIT 1"
    assert "kept the earlier answers" in con.execute(why).fetchone()[0]
    con.execute("SET rados_offload_cache = false")
    con.execute(query).fetchall()
    assert "kept the earlier answers" not in con.execute(why).fetchone()[0]
    con.execute("SET rados_offload_cache = true")
    for number in range(1, 5):
        write(con, f"{objects}/{number}.parquet", 9000)
    assert run(con, query)[1:] == (4, OBJECTS - 4)
    con.execute(query).fetchall()
    assert "kept the earlier answers" not in con.execute(why).fetchone()[0]


def test_what_an_answer_was_like_says_nothing_of_other_data(con, objects):
    """Of the first object, which stands for the others."""
    query = query_of(objects)
    why = "SELECT why FROM rados_scans() WHERE pushed LIKE '%sum(i)%' ORDER BY scan DESC LIMIT 1"
    for first, expected in ((None, True), (9000, False)):
        con.execute("SET rados_offload = 'always'")
        run(con, query)
        if first is not None:
            write(con, f"{objects}/0.parquet", first)
        con.execute("SET rados_offload = 'auto'")
        con.execute("EXPLAIN " + query)
        assert ("kept the earlier answers" in con.execute(why).fetchone()[0]) == expected


def test_a_replaced_object_is_not(con, objects):
    query = query_of(objects)
    for _ in range(2):
        run(con, query)
    for first in (50_000, 60_000, 50_000):
        write(con, f"{objects}/2.parquet", first)
        assert run(con, query) == (read(con, query), 1, OBJECTS - 1)
        assert run(con, query) == (read(con, query), 0, OBJECTS)


def test_an_object_that_other_programs_change_is_not(con, cluster, objects, pool):
    """Removed and written again, with another attribute, and with other content."""
    query = query_of(objects)
    name = f"{objects}/3.parquet".removeprefix("rados://data/")
    old = pool.read(name, 1 << 20)
    other = pool.read(name.replace("3.parquet", "4.parquet"), 1 << 20)
    expected, *_ = run(con, query)
    pool.remove(name)
    pool.write(name, old)
    assert run(con, query) == (expected, 1, OBJECTS - 1)
    pool.set_attribute(name, "unrelated", b"x")
    assert run(con, query) == (expected, 1, OBJECTS - 1)
    rados(cluster, "-p", "data", "put", name, "-", data=other)
    rows, computed, cached = run(con, query)
    assert (computed, cached) == (1, OBJECTS - 1)
    assert rows == read(con, query) != expected


def test_a_query_that_has_seen_the_old_object_fails(con, objects):
    """It is not answered with what was kept of the version that it has pinned."""
    path = f"{objects}/0.parquet"
    scan = f"SELECT i FROM '{path}' WHERE i % 100 = 7"
    run(con, scan)
    assert run(con, scan)[2] == 1
    con.execute("SET threads = 1")
    con.execute("SET streaming_buffer_size = '100KB'")
    reader = con.execute(f"SELECT -1 AS i FROM range(3000000) UNION ALL {scan}")
    assert reader.fetchone() == (-1,)
    with con.cursor() as other:
        write(other, path, 7000)
    with pytest.raises(duckdb.IOException, match="replaced since"):
        reader.fetchall()


@pytest.mark.parametrize(
    "change",
    [
        "SET rados_offload_lz4 = true",
        "SET rados_offload_cache = false",
    ],
)
def test_other_settings_are_not_answered_from_it(con, objects, change):
    query = query_of(objects)
    expected, *_ = run(con, query)
    con.execute(change)
    assert run(con, query) == (expected, OBJECTS, 0)


def test_other_requests_are_not_answered_from_it(con, objects):
    run(con, query_of(objects))
    other = query_of(objects, "i < 5001")
    assert run(con, other) == (read(con, other), OBJECTS, 0)


def test_nothing_is_kept_of_a_request_that_does_not_want_it(con, objects):
    query = query_of(objects)
    con.execute("SET rados_offload_cache = false")
    for _ in range(3):
        assert run(con, query)[1:] == (OBJECTS, 0)
    con.execute("SET rados_offload_cache = true")
    assert run(con, query)[1:] == (OBJECTS, 0)
    assert run(con, query)[1:] == (0, OBJECTS)


def test_a_user_without_the_right_gets_nothing(con, cluster, objects):
    query = query_of(objects)
    expected, *_ = run(con, query)
    assert run(con, query)[2] == OBJECTS
    keyring = cluster.create_user("onlooker", "mon", "allow r", "osd", "allow r pool=data")
    with connect(cluster, User("onlooker", keyring)) as other:
        other.execute("SET rados_offload = 'always'")
        assert run(other, query) == (expected, 0, 0)
        reasons = "SELECT fallback_reasons FROM rados_scans() WHERE offloaded ORDER BY scan DESC LIMIT 1"
        why = other.execute(reasons).fetchone()[0]
        assert "may not call the object class" in why
        assert "'allow class rawduck query pool data'" in why  # without the pool, it would be for all of them
    name = f"{objects}/0.parquet".removeprefix("rados://data/")
    raw = Pool(cluster.conf, keyring, "data", "onlooker")
    with pytest.raises(OSError, match="error 1"):
        raw.query(name, SUM)
    raw.close()


def test_errors_and_long_answers_are_not_kept(objects, pool):
    name = f"{objects}/1.parquet".removeprefix("rados://data/")
    failing = replace(SUM, outputs=["sum(CAST(g AS INTEGER))"])
    for _ in range(3):
        reply = pool.query(name, failing)
        assert (reply.status, reply.cached) == ("an expression failed", False)
    large = Request(COLUMNS, ["i", *["g"] * 20], use_cache=True)
    for _ in range(3):
        reply = pool.query(name, large, 1 << 20)
        assert (reply.status, reply.cached) == ("ok", False)
        assert len(reply.payload) > 64 << 10


def test_what_an_answer_says_about_itself(objects, pool):
    name = f"{objects}/1.parquet".removeprefix("rados://data/")
    first, second = pool.query(name, SUM), pool.query(name, SUM)
    assert (first.cached, second.cached) == (False, True)
    assert first.read_bytes > 0
    assert first.cpu_us > 0
    expected = replace(first, cached=True, read_bytes=0, cpu_us=0)
    assert second == expected
    assert not pool.query(name, replace(SUM, use_cache=False)).cached


CALL = struct.Struct("<II7Q8I")  #: CallPacket of ceph/channel/packets.hpp
ANSWER_BYTES = 160
ASK, HAND_OVER = 1, 2
SEND_DATA, WORKING, REPLY = 1, 2, 3


class Helper:
    """The helper without OSDs: a process of its own, and what a class sends to it."""

    def __init__(self, directory, **environment: str) -> None:
        program = class_directory() / "rawduck-osd-helper"
        command = [program, f"--socket-dir={directory}"]
        self._process = subprocess.Popen(command, env={**os.environ, **environment})
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        limit = time.monotonic() + 20
        while self._socket.connect_ex(str(directory / "helper.sock")) != 0:
            assert time.monotonic() < limit
            time.sleep(0.05)

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def connect_again(self) -> None:
        """As a class does that has waited too long for an answer."""
        path = self._socket.getpeername()
        self._socket.close()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(path)

    def ask(self, key: int) -> tuple[int, Reply | None]:
        """The kind of the answer, and the reply."""
        return self._call(ASK, key, 0, [])

    def hand_over(self, key: int, content: bytes, keeps_reply: bool = True) -> None:
        """A job, until its answer was sent."""
        request = SUM.encode()
        file = os.memfd_create("object", os.MFD_ALLOW_SEALING)
        with open(file, "wb") as writer:
            writer.write(request + content + struct.pack("<QQ", 0, len(content)))
            writer.flush()
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, 0xF)
            kind, _ = self._call(HAND_OVER, key, len(content), [file], len(request), keeps_reply)
        while kind == WORKING:
            time.sleep(0.01)
            kind, reply = self.ask(key)
            assert reply is None or (reply.status, reply.cached) == ("ok", False)
        assert kind == REPLY

    def _call(self, kind: int, key: int, size: int, files: list[int], request: int = 0, keeps: bool = False):
        ranges = 1 if files else 0
        numbers = [request, ranges, 10000, 0, ranges, 0, 0, int(keeps)]
        packet = CALL.pack(2, kind, key, 0, 0, 1, size, 0, size, *numbers)
        socket.send_fds(self._socket, [packet], files)
        answer, received, *_ = socket.recv_fds(self._socket, ANSWER_BYTES, 1)
        version, answer_kind, _, reply_bytes = struct.unpack_from("<IIQQ", answer)
        assert version == 2
        if answer_kind != REPLY:
            return answer_kind, None
        with open(received[0], "rb") as reader:
            reader.seek(0)
            return answer_kind, Reply.decode(reader.read(reply_bytes))


@pytest.fixture
def content(tmp_path) -> bytes:
    path = tmp_path / "rows.parquet"
    duckdb.sql(f"COPY (SELECT i, 'g' AS g FROM range(1000) r(i)) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


@pytest.mark.parametrize(("megabytes", "kept"), [("", True), ("1", True), ("0", False)])
def test_the_memory_for_answers_can_be_set(cluster, content, megabytes, kept):
    helper = Helper(cluster.directory / "run" / f"kept{megabytes}", RAWDUCK_CLASS_CACHE_MB=megabytes)
    try:
        helper.hand_over(1, content)
        helper.hand_over(2, content, keeps_reply=False)
        time.sleep(0.3)  # the jobs' own answers are forgotten 0.1 s after they were sent, by the next call
        assert helper.ask(3)[0] == SEND_DATA
        kind, reply = helper.ask(1)
        assert kind == (REPLY if kept else SEND_DATA)
        assert reply is None or (reply.status, reply.cached, reply.rows) == ("ok", True, 1)
        assert helper.ask(2)[0] == SEND_DATA
    finally:
        helper.close()


def test_an_answer_that_was_lost_is_no_kept_one(cluster, content):
    """The class has closed its connection before it asked for anything else: it did not get the answer."""
    helper = Helper(cluster.directory / "run" / "lost")
    try:
        helper.hand_over(1, content)
        helper.connect_again()
        for was_kept in (False, True):
            kind, reply = helper.ask(1)
            assert (kind, reply.cached) == (REPLY, was_kept)
    finally:
        helper.close()
