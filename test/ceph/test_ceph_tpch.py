"""All 22 TPC-H queries on rados:// give DuckDB's reference answers, also while OSDs fail."""

from __future__ import annotations

import threading
import time

import duckdb
import pytest
from ceph_support import SOURCE, connect, one
from rawduck import tpch

SCALE = 0.1
POOLS = ("data", "coded")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tpch") / "data"
    tpch.generate(made, SCALE)
    return made


@pytest.fixture(scope="module", params=POOLS)
def tables(request, cluster, folder):
    """TPC-H tables in a pool. Returns the prefix of the tables' prefixes."""
    prefix = f"rados://{request.param}/tpch"
    with connect(cluster) as con:
        for table in tpch.TABLES:
            con.execute(f"COPY (FROM '{folder}/{table}.parquet') TO '{prefix}/{table}' (FORMAT parquet)")
    return prefix


def views(con, prefix: str):
    for table in tpch.TABLES:
        con.execute(f"CREATE OR REPLACE VIEW {table} AS FROM read_parquet('{prefix}/{table}/*')")
    return con


def test_every_answer(con, tables):
    reference = tpch.Reference(SOURCE, SCALE)
    views(con, tables)
    results = {n: con.execute(reference.query(n)).fetchall() for n in tpch.QUERY_NUMBERS}
    wrong = {n: tpch.difference(rows, reference.answer(n)) for n, rows in results.items()}
    assert len(wrong) == 22
    assert not {n: text for n, text in wrong.items() if text}


def answer_during(con, cluster, prefix: str, disturb) -> int:
    """Runs queries 1 and 6 while `disturb` runs and checks each result. Returns their number."""
    reference = tpch.Reference(SOURCE, SCALE)
    views(con, prefix)
    thread = threading.Thread(target=disturb)
    answers = 0
    thread.start()
    try:
        while thread.is_alive() or answers == 0:
            for number in (1, 6):
                rows = con.execute(reference.query(number)).fetchall()
                assert tpch.difference(rows, reference.answer(number)) == ""
                answers += 1
    finally:
        thread.join()
    return answers


def test_an_osd_dies_while_queries_run(con, cluster, tables):
    """Another OSD takes over, in a replicated and in an erasure-coded pool, without an error."""

    def disturb():
        time.sleep(0.5)
        cluster.daemon("osd.1").kill()
        cluster.wait(lambda: cluster.osds_up() == 2, "the monitor has noticed", dead=("osd.1",))

    try:
        assert answer_during(con, cluster, tables, disturb) > 2
        con.execute(f"COPY (SELECT 1 AS a) TO '{tables}/written/while_down.csv'")
    finally:
        cluster.restart("osd.1")
    assert one(con, f"FROM '{tables}/written/while_down.csv'") == 1


def test_an_osd_restarts_while_queries_run(con, cluster, tables):
    assert answer_during(con, cluster, tables, lambda: cluster.restart("osd.2")) > 2


def test_both_copies_are_down(con, cluster, folder):
    """An error that says so within rados_timeout; queries work again when the OSDs do."""
    prefix = "rados://data/down"
    con.execute(f"COPY (FROM '{folder}/lineitem.parquet') TO '{prefix}' (FORMAT parquet)")
    query = f"SELECT sum(l_orderkey) FROM read_parquet('{prefix}/*')"
    before = one(con, query)
    down = ("osd.0", "osd.1", "osd.2")
    try:
        for name in down:
            cluster.daemon(name).kill()
        con.execute("SET rados_timeout = 3")
        start = time.monotonic()
        with pytest.raises(duckdb.IOException, match=r"rados://data.*did not answer in time.*rados_timeout"):
            con.execute(query)
        assert time.monotonic() - start < 15
        with pytest.raises(duckdb.IOException, match=r"did not answer in time"):
            con.execute(f"COPY (SELECT 1) TO '{prefix}x/x.csv'")
    finally:
        for name in down:
            cluster.start(name)
        cluster.wait(lambda: cluster.osds_up() == 3, "every OSD is up")
    con.execute("RESET rados_timeout")
    assert one(con, query) == before
