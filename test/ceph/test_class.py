"""The object class inside a real OSD: its replies, what it rejects, and that the OSD keeps running."""

from __future__ import annotations

import os
import random
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import duckdb
import pytest
from class_protocol import Pool, Request, crc32c, seal
from rawduck.ceph.cluster import class_directory

ROWS = "SELECT i AS a, (i % 7)::VARCHAR AS g, (i / 10)::DECIMAL(15,2) AS d FROM range(200000) r(i)"
COLUMNS = [("a", "BIGINT"), ("g", "VARCHAR"), ("d", "DECIMAL(15,2)")]
GROUPED = Request(COLUMNS, ["g", "sum(d)", "count(*)"], "a >= 5 AND g <> '3'", aggregate=True, groups=1)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    duckdb.sql(f"COPY ({ROWS}) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


@pytest.fixture(scope="module")
def pool(cluster, parquet):
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    opened = Pool(cluster.conf, cluster.keyring, "data")
    opened.write("class/rows", parquet)
    yield opened
    opened.close()


def all_run(cluster) -> bool:
    return all(cluster.daemon(name).running for name in cluster.daemon_names())


def memory_bytes(cluster) -> int:
    return sum(cluster.daemon(name).memory_bytes for name in cluster.daemon_names())


def record_checksum(pool, name: str, parquet: bytes, size: int):
    """Sets the checksum attribute for the footer of `parquet` in an object of `size` bytes."""
    footer = struct.unpack("<I", parquet[-8:-4])[0] + 8
    value = struct.pack("<IQ", crc32c(parquet[-footer:]), size)
    pool.set_attribute(name, "rawduck.footer_crc32c", value)


def test_version(pool):
    assert pool.call("class/rows", "version") == b"rawduck object class, protocol 4, DuckDB v2.0.0"


def test_it_answers_from_the_object(pool, parquet):
    reply = pool.query("class/rows", GROUPED)
    assert (reply.status, reply.text, reply.rows) == ("ok", "", 6)
    assert 0 < reply.read_bytes < 2 * len(parquet)
    assert reply.cpu_us > 0
    everything = pool.query("class/rows", Request(COLUMNS, ["a", "d"], lz4=True), 8 << 20)
    assert (everything.rows, everything.lz4) == (200000, True)
    assert len(everything.payload) < everything.raw_bytes


def test_the_right_to_call_is_one_to_read(cluster, pool, parquet):
    """In the pools that the capability covers: without a pool, in all of them."""
    cluster.create_pool("private")
    writer = Pool(cluster.conf, cluster.keyring, "private")
    writer.write("object", parquet)
    writer.close()
    rights = {"caller": "allow class rawduck query pool data", "anywhere": "allow class rawduck"}
    for user, right in rights.items():
        keyring = cluster.create_user(user, "mon", "allow r", "osd", right)
        caller = Pool(cluster.conf, keyring, "private", user)
        with pytest.raises(OSError, match="error 1"):
            caller.read("object", 8)
        if user == "anywhere":
            assert caller.query("object", GROUPED).status == "ok"
        else:
            with pytest.raises(OSError, match="error 1"):
                caller.query("object", GROUPED)
        caller.close()


def test_refusals_reach_the_client(pool):
    assert pool.query("class/rows", replace(GROUPED, duckdb_version="v1.4.0")).status == "version"
    assert pool.query("class/rows", replace(GROUPED, version=2)).status == "version"
    assert (
        pool.query("class/rows", replace(GROUPED, filter="read_text('/etc/passwd') IS NULL")).status
        == "bad request"
    )
    assert pool.query("class/rows", Request(COLUMNS, ["a"], reply_bytes_max=1000)).status == "too large"
    assert pool.query("class/rows", Request(COLUMNS, ["a"], time_ms_max=0)).status == "too slow"
    assert pool.query("class/rows", Request([("nowhere", "BIGINT")], ["nowhere"])).status == "failed"
    failing = Request(COLUMNS, ["CAST(CAST(a AS VARCHAR) AS DATE)"])
    assert pool.query("class/rows", failing).status == "an expression failed"
    with pytest.raises(OSError, match="error 2"):
        pool.query("no-such-object", GROUPED)
    with pytest.raises(OSError, match="error 7"):
        pool.call("class/rows", "query", bytes(300 << 10))


def test_nonsense_is_refused(pool, cluster):
    """Malformed requests, and well-formed ones with malformed expressions."""
    generator = random.Random(1)
    good = GROUPED.encode()
    for _ in range(300):
        body = bytearray(good[16:])
        for _ in range(3):
            body[generator.randrange(len(body))] = generator.randrange(256)
        data = seal(bytes(body)) if generator.random() < 0.8 else bytes(body)
        assert pool.call("class/rows", "query", data)[:4] == b"RDQA"
    assert all_run(cluster)
    assert pool.query("class/rows", GROUPED).rows == 6


@pytest.mark.parametrize("recorded", [True, False], ids=["checksum", "no checksum"])
def test_damaged_objects(pool, cluster, parquet, recorded):
    """No crash, and never a result from a corrupt footer with a recorded checksum."""
    generator = random.Random(2)
    footer = struct.unpack("<I", parquet[-8:-4])[0] + 8
    counting = Request(COLUMNS, ["count(a)"], aggregate=True)
    statuses = []
    for number in range(200):
        damaged = bytearray(parquet)
        start = len(parquet) - footer if number % 4 else 0
        for _ in range(generator.randrange(1, 4)):
            damaged[generator.randrange(start, len(parquet))] ^= 1 << generator.randrange(8)
        pool.write("class/damaged", bytes(damaged))
        if recorded:
            record_checksum(pool, "class/damaged", parquet, len(parquet))
        reply = pool.query("class/damaged", counting)
        statuses.append(reply.status)
        if recorded and damaged[-footer:] != parquet[-footer:]:
            assert reply.status == "corrupt"
    assert all_run(cluster)
    assert statuses.count("corrupt") > 50
    for short in (b"", b"PAR1", parquet[: len(parquet) // 2], b"x" * 1000):
        pool.write("class/damaged", short)
        assert pool.query("class/damaged", counting).status == "corrupt"


def test_a_checksum_of_another_object_does_not_count(pool, parquet):
    """Another program has replaced the object and kept its attribute."""
    pool.write("class/replaced", parquet)
    record_checksum(pool, "class/replaced", bytes(100) + parquet[-8:], len(parquet) + 1)
    assert pool.query("class/replaced", GROUPED).status == "ok"


def test_memory_stays_flat(pool, cluster):
    """Many concurrent calls."""
    calls = int(os.environ.get("RAWDUCK_CLASS_CALLS", "2000"))

    def call(_: int) -> str:
        return pool.query("class/rows", GROUPED).status

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(call, range(calls // 4)))
        before = memory_bytes(cluster)
        assert set(threads.map(call, range(calls))) == {"ok"}
    after = memory_bytes(cluster)
    print(f"OSDs: {before >> 20} MiB, after {calls} calls {after >> 20} MiB")
    assert after < before + (40 << 20)


def test_an_osd_that_starts_again_finds_the_helper(pool, cluster):
    for name in ("osd.0", "osd.1", "osd.2"):
        cluster.restart(name)
    assert pool.query("class/rows", GROUPED).rows == 6
