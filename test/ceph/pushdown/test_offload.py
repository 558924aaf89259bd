"""Queries pushed into the OSDs: results equal stock DuckDB's, and objects without a reply are read."""

from __future__ import annotations

import os
import re
import struct
import threading
from pathlib import Path

import duckdb
import pytest
from ceph_support import SOURCE, User, connect, one, requests
from class_protocol import Pool
from rawduck import tpch
from rawduck.ceph.cluster import class_directory

SCALE = 0.1
CALLS = int(os.environ.get("RAWDUCK_CLASS_CALLS", "2000"))
# Bytes that are taken for a value in an answer.
WIDTHS = {"l_orderkey": 8, "l_comment": 20, "l_shipmode": 20, "l_returnflag": 20, "sum(l_orderkey": 16}
PREFIX = "rados://data/offload"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tpch") / "data"
    tpch.generate(made, SCALE)
    return made


@pytest.fixture(scope="module")
def tables(cluster, folder):
    """TPC-H with the large tables in several objects."""
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    with connect(cluster) as con:
        for table in tpch.TABLES:
            size = "FILE_SIZE_BYTES '1MB', ROW_GROUP_SIZE 20000" if table in ("lineitem", "orders") else ""
            options = ", ".join(option for option in ("FORMAT parquet", size) if option)
            con.execute(f"COPY (FROM '{folder}/{table}.parquet') TO '{PREFIX}/{table}' ({options})")
    return PREFIX


@pytest.fixture
def pushed(con, tables):
    """A connection that pushes everything that can be pushed."""
    for table in tpch.TABLES:
        con.execute(f"CREATE VIEW {table} AS FROM read_parquet('{tables}/{table}/*')")
    con.execute("SET rados_offload = 'always'")
    return con


def last_scan(con, condition: str = "true") -> dict:
    result = con.execute(f"FROM rados_scans() WHERE {condition} ORDER BY scan DESC LIMIT 1")
    names = [column[0] for column in result.description]
    return dict(zip(names, result.fetchone(), strict=True))


def scans_so_far(con) -> int:
    return one(con, "SELECT coalesce(max(scan), 0) FROM rados_scans()")


def last_offloaded(con) -> dict:
    return last_scan(con, "offloaded")


def pushed_and_read(con, query: str) -> tuple[list, list]:
    """The query's rows, pushed and read."""
    mode = one(con, "SELECT current_setting('rados_offload')")
    rows = con.execute(query).fetchall()
    con.execute("SET rados_offload = 'never'")
    stock = con.execute(query).fetchall()
    con.execute(f"SET rados_offload = '{mode}'")
    return rows, stock


@pytest.mark.parametrize("mode", ["always", "auto", "filters"])
def test_every_tpch_answer(pushed, mode):
    reference = tpch.Reference(SOURCE, SCALE)
    pushed.execute(f"SET rados_offload = '{mode}'")
    before = scans_so_far(pushed)
    wrong = {}
    for number in tpch.QUERY_NUMBERS:
        text = tpch.difference(pushed.execute(reference.query(number)).fetchall(), reference.answer(number))
        if text:
            wrong[number] = text
    assert not wrong
    query = "SELECT coalesce(fallback_reasons, '') FROM rados_scans() WHERE offloaded AND scan > ?"
    scans = pushed.execute(query, [before]).fetchall()
    assert len(scans) > 10 or mode == "auto"  # which pushes what was measured to be faster
    # That an answer is too large is found out by asking. There is no other reason here.
    reasons = {reason for (reasons,) in scans for reason in reasons.split("; ")}
    assert {reason for reason in reasons if reason and "too large" not in reason} == set()


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("SELECT sum(l_tax), count(*), min(l_comment), max(l_shipdate) FROM lineitem", "min(l_comment)"),
        ("SELECT avg(l_quantity), avg(l_linenumber), avg(l_linenumber::SMALLINT) FROM lineitem",
         "sum(l_quantity)"),
        ("SELECT avg(l_quantity) FROM lineitem WHERE l_quantity < 0", "count(l_quantity)"),
        # Without groups DuckDB makes a sum and a count of it; only these are merged as averages.
        ("SELECT l_shipmode, avg(l_quantity), avg(l_linenumber), avg(l_linenumber::SMALLINT) FROM lineitem "
         "GROUP BY ALL ORDER BY ALL", "sum(l_quantity)"),
        ("SELECT count(*), sum(l_tax) FROM lineitem WHERE l_quantity < 0", "count(*)"),
        # Such that the class, which binds it anew, need not widen each row and cast it back.
        ("SELECT sum(l_extendedprice * (1 - l_discount)) FROM lineitem", "CAST(1.00 AS DECIMAL(15, 2))"),
        ("SELECT l_shipmode, l_returnflag, count(l_tax) FILTER (WHERE l_tax > 0.03) FROM lineitem "
         "GROUP BY ALL ORDER BY ALL", "GROUP BY 2"),
        ("SELECT year(l_shipdate) AS y, sum(CASE WHEN l_shipmode = 'AIR' THEN 1 ELSE 0 END) FROM lineitem "
         "GROUP BY y HAVING y > 1993 ORDER BY y", "CASE"),
        ("SELECT l_orderkey, l_comment FROM lineitem WHERE (l_quantity = 1 OR l_tax > 0.07) "
         "AND l_comment LIKE '%a_gle%' AND l_shipmode IN ('AIR', 'RAIL', 'SHIP')", "l_shipmode"),
        ("SELECT l_orderkey FROM lineitem WHERE l_receiptdate > l_commitdate + 60", "l_receiptdate"),
        ("SELECT * FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 7 OFFSET 3",
         "LIMIT 10"),
        ("SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_shipmode = 'AIR' LIMIT 12", "LIMIT 12"),
        ("SELECT o_orderkey FROM orders WHERE o_comment NOT LIKE '%special%requests%'", "o_comment"),
    ],
)  # fmt: skip
def test_what_is_pushed(pushed, query, word):
    """The order of rows is the same too, as DuckDB guarantees for files."""
    rows, stock = pushed_and_read(pushed, query)
    assert rows == stock
    scan = last_offloaded(pushed)
    assert word in scan["pushed"]
    assert 0 < scan["answered"] <= scan["objects"]


def test_lists_of_constants_are_pushed_without_the_filter_around_them(pushed):
    """DuckDB adds them to the scan, to skip rows by statistics: hash() cannot be pushed."""
    dates = ", ".join(f"DATE '1995-06-{day}'" for day in (15, 17, 21, 22))
    query = f"SELECT count(*) FROM lineitem WHERE l_shipdate IN ({dates}) AND hash(l_orderkey) > l_linenumber"
    rows, stock = pushed_and_read(pushed, query)
    assert rows == stock
    scan = last_offloaded(pushed)
    assert "1995-06-21" in scan["pushed"]
    assert scan["reply_bytes"] < 100_000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(DISTINCT l_shipmode) FROM lineitem",
        "SELECT list(l_tax ORDER BY l_tax)[1] FROM lineitem",
        "SELECT median(l_tax) FROM lineitem",
        "SELECT l_shipmode, count(*) FROM lineitem GROUP BY ROLLUP (l_shipmode) ORDER BY ALL",
        "SELECT count(*) FROM lineitem WHERE hash(l_comment) % 3 = 0",
        "SELECT filename, count(*) FROM read_parquet('rados://data/offload/orders/*') GROUP BY 1 ORDER BY 1",
        "SELECT count(*) FROM lineitem USING SAMPLE 10% (bernoulli, 7)",
    ],
)
def test_what_is_not_pushed_whole(pushed, query):
    rows, stock = pushed_and_read(pushed, query)
    assert rows == stock


def test_joins_tell_the_scans_their_keys(pushed):
    """A small build side filters the other side's objects."""
    query = (
        "SELECT sum(l_extendedprice) FROM lineitem JOIN orders ON l_orderkey = o_orderkey "
        "WHERE o_orderdate = DATE '1995-03-05' AND o_totalprice > 300000"
    )
    rows, stock = pushed_and_read(pushed, query)
    assert rows == stock
    assert last_scan(pushed, "offloaded AND first_object LIKE '%lineitem%'")["reply_bytes"] < 6_000_000


def test_explain_says_what_and_why(pushed):
    plan = pushed.execute("EXPLAIN SELECT sum(l_tax) FROM lineitem WHERE l_quantity < 3").fetchone()[1]
    for word in ("Rados Offload", "Pushed", "sum(l_tax)", "Why", "always"):
        assert word.lower() in plan.lower()
    pushed.execute("SET rados_offload = 'auto'")
    pushed.execute("EXPLAIN SELECT * FROM lineitem")
    scan = last_scan(pushed)
    assert (scan["offloaded"], scan["answered"]) == (False, 0)
    assert "an answer is estimated to have" in scan["why"]


@pytest.mark.parametrize(
    ("query", "least", "most"),
    [
        ("SELECT l_orderkey FROM lineitem", 0.9, 1.1),
        ("SELECT l_orderkey FROM lineitem WHERE l_shipdate < DATE '1995-06-15'", 0.4, 0.6),
        ("SELECT l_orderkey FROM lineitem WHERE l_shipdate BETWEEN DATE '1995-06-01' AND DATE '1995-06-30'",
         0.005, 0.02),
        ("SELECT l_orderkey FROM lineitem WHERE l_quantity > 41 OR 0.08 <= l_tax", 0.1, 0.3),
        ("SELECT l_orderkey FROM lineitem WHERE l_shipmode IN ('AIR', 'MAIL')", 0.2, 0.4),
        ("SELECT l_orderkey FROM lineitem WHERE NOT l_linestatus = 'F'", 0.4, 0.6),
        ("SELECT l_orderkey FROM lineitem WHERE l_comment NOT LIKE '%even%'", 0.8, 1),
        ("SELECT l_orderkey FROM lineitem WHERE l_commitdate < l_receiptdate", 0.4, 0.6),
        ("SELECT l_orderkey FROM lineitem LIMIT 10", 0, 0.01),
        ("SELECT sum(l_orderkey) FROM lineitem", 0, 0.001),
        ("SELECT l_shipmode, l_returnflag, count(*) FROM lineitem GROUP BY ALL", 0, 0.01),
        ("SELECT l_orderkey, l_comment, count(*) FROM lineitem GROUP BY ALL", 0.9, 1.4),
    ],
)  # fmt: skip
def test_objects_tell_what_is_to_be_expected(pushed, query, least, most):
    """The size of replies is estimated from the first object's metadata: here as a share of all rows."""
    pushed.execute("SET rados_offload = 'auto'")
    before = scans_so_far(pushed)
    pushed.execute("EXPLAIN " + query)
    scan = last_scan(
        pushed, f"scan = {before + 1}"
    )  # the whole of it; there may be an attempt at the rows alone
    number, unit = re.search(r"estimated to have (\d+) (bytes|KiB|MiB)", scan["why"]).groups()
    estimated = int(number) * {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit] * scan["objects"]
    width = sum(WIDTHS[column] for column in WIDTHS if f"CAST({column}" in scan["pushed"].split(" WHERE ")[0])
    assert least <= estimated / max(width, 1) / one(pushed, "SELECT count(*) FROM lineitem") <= most


def test_a_range_that_is_no_number_is_estimated(con, data_prefix):
    """The distance between the largest and the smallest value is infinite: no share of it is filtered."""
    rows = "CASE range WHEN 0 THEN -1.7e308 WHEN 1 THEN 1.7e308 ELSE random() END AS d"
    con.execute(f"COPY (SELECT {rows} FROM range(600000)) TO '{data_prefix}/0.parquet' (FORMAT parquet)")
    before = scans_so_far(con)
    con.execute(f"EXPLAIN SELECT d FROM read_parquet('{data_prefix}/*') WHERE d < 1.6e308")
    assert "an answer is estimated to have 4687 KiB" in last_scan(con, f"scan = {before + 1}")["why"]


def test_first_rows_of_an_order_are_read(pushed):
    """Except with 'always': reading skips most of the objects' columns."""
    pushed.execute("SET rados_offload = 'auto'")
    before = scans_so_far(pushed)
    rows, stock = pushed_and_read(
        pushed, "SELECT * FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey LIMIT 5"
    )
    assert rows == stock
    assert not one(pushed, "SELECT count(*) FROM rados_scans() WHERE offloaded AND scan > ?", before)


def test_prepared_statements_see_new_objects(pushed):
    pushed.execute("COPY (SELECT 1 AS a) TO 'rados://data/prepared/1.parquet' (FORMAT parquet)")
    pushed.execute(
        "PREPARE p AS SELECT sum(a), count(*) FROM read_parquet('rados://data/prepared/*') WHERE a > $1"
    )
    assert pushed.execute("EXECUTE p(0)").fetchall() == [(1, 1)]
    pushed.execute("COPY (SELECT 2 AS a) TO 'rados://data/prepared/2.parquet' (FORMAT parquet)")
    assert pushed.execute("EXECUTE p(0)").fetchall() == [(3, 2)]
    assert pushed.execute("EXECUTE p(1)").fetchall() == [(2, 1)]


def test_objects_with_other_types_are_cast_as_read_parquet_does(pushed):
    """The first object determines the columns."""
    pushed.execute(
        "COPY (SELECT 5::BIGINT AS a, 'x' AS b) TO 'rados://data/types/1.parquet' (FORMAT parquet)"
    )
    pushed.execute(
        "COPY (SELECT 6::TINYINT AS a, 'y' AS b) TO 'rados://data/types/2.parquet' (FORMAT parquet)"
    )
    for query in (
        "SELECT sum(a), max(b) FROM {}",
        "SELECT a, b FROM {} WHERE a > 5",
        "SELECT a FROM {} LIMIT 2",
    ):
        rows, stock = pushed_and_read(pushed, query.format("read_parquet('rados://data/types/*')"))
        assert rows == stock
    pushed.execute("COPY (SELECT 'z' AS b) TO 'rados://data/types/3.parquet' (FORMAT parquet)")
    with pytest.raises(duckdb.Error, match=r'"?a"?'):
        pushed.execute("SELECT sum(a) FROM read_parquet('rados://data/types/*')").fetchall()


def test_no_class_on_one_osd(cluster, pushed):
    """Objects of this OSD are read; the other OSDs reply."""
    query = "SELECT count(*), sum(l_extendedprice) FROM lineitem WHERE l_quantity > 10"
    moved = cluster.class_directory(0) / "libcls_rawduck.so"
    aside = moved.with_suffix(".aside")
    try:
        moved.rename(aside)
        cluster.restart("osd.0")

        def some_fell_back() -> bool:
            rows, stock = pushed_and_read(pushed, query)
            assert rows == stock
            return last_offloaded(pushed)["fell_back"] > 0

        # Until they have the new map, the other OSDs reply for the one that was restarted.
        cluster.wait(some_fell_back, "osd.0 is asked")
        scan = last_offloaded(pushed)
        assert scan["answered"] > 0
        assert "no object class rawduck" in scan["fallback_reasons"]
    finally:
        aside.rename(moved)
        cluster.restart("osd.0")


def test_erasure_coded_pools_are_read(con, tables):
    """Classes cannot read there. The first replies say so, and the other calls are cancelled."""
    prefix = "rados://coded/offload"
    con.execute(
        f"COPY (FROM read_parquet('{tables}/orders/*')) TO '{prefix}' "
        "(FORMAT parquet, FILE_SIZE_BYTES '200kB', ROW_GROUP_SIZE 5000)"
    )
    query = f"SELECT count(*), sum(o_totalprice) FROM read_parquet('{prefix}/*') WHERE o_custkey > 50"
    con.execute("SET rados_offload = 'always'")
    before = requests(con, "exec")
    rows, stock = pushed_and_read(con, query)
    assert rows == stock
    asked = requests(con, "exec") - before
    scan = last_offloaded(con)
    assert 1 <= asked < scan["objects"]  # two at once; an OSD that has no time at the moment is asked again
    assert scan["fell_back"] == scan["objects"] > 5
    assert "cannot read in this pool" in scan["fallback_reasons"]

    con.execute("SET rados_offload = 'auto'")
    rows, stock = pushed_and_read(con, query)
    assert rows == stock
    assert requests(con, "exec") == before + asked
    scan = last_scan(con)
    assert not scan["offloaded"]
    assert "erasure-coded" in scan["why"]


def test_explain_says_at_once_that_a_pool_is_erasure_coded(cluster):
    """On a new connection to a new pool, before any query has run."""
    cluster.create_pool("coded2", erasure_coded=True)
    path = "rados://coded2/x.parquet"
    with connect(cluster) as con:
        con.execute(f"COPY (SELECT range AS a FROM range(1000)) TO '{path}' (FORMAT parquet)")
        query = f"EXPLAIN SELECT sum(a) FROM '{path}'"
        plan = con.execute(query).fetchone()[1]
        assert "Not pushed" in plan
        assert "erasure-coded" in plan
        asked = requests(con, "exec")
        con.execute(query).fetchall()
        assert requests(con, "exec") == asked  # not for a minute
        con.execute("SET rados_offload = 'always'")
        plan = con.execute(query).fetchone()[1]
        assert "pool coded2 is erasure-coded" in plan
        other = "rados://data/replicated/x.parquet"
        con.execute(f"COPY (SELECT range AS a FROM range(1000)) TO '{other}' (FORMAT parquet)")
        plan = con.execute(query.replace(path, other)).fetchone()[1]
        assert "erasure-coded" not in plan


def test_objects_are_shared_with_the_client(pushed):
    """With one call in flight, OSDs are behind from the beginning."""
    pushed.execute("SET rados_offload = 'shared'")
    pushed.execute("SET rados_offload_in_flight = 1")
    pushed.execute("SET rados_offload_cache = false")
    aggregates = "count(*), sum(l_quantity), avg(l_tax), max(l_comment)"
    query = f"SELECT l_returnflag, {aggregates} FROM lineitem GROUP BY ALL"
    shared = 0
    for _ in range(20):
        rows, stock = pushed_and_read(pushed, query + " ORDER BY ALL")
        assert rows == stock
        scan = last_scan(pushed, "offloaded")
        assert scan["answered"] + scan["shared"] == scan["objects"]
        assert scan["fell_back"] == 0
        shared += scan["shared"]
    assert shared > 0


def test_rows_in_order_are_not_shared(pushed):
    pushed.execute("SET rados_offload = 'shared'")
    pushed.execute("SET rados_offload_in_flight = 1")
    rows, stock = pushed_and_read(
        pushed, "SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_quantity < 2"
    )
    assert rows == stock
    scan = last_offloaded(pushed)
    assert (scan["answered"], scan["shared"]) == (scan["objects"], 0)


def test_a_user_who_may_only_read(cluster, tables):
    keyring = cluster.create_user("reader", "mon", "allow r", "osd", "allow r pool=data")
    with connect(cluster, User("reader", keyring)) as con:
        con.execute("SET rados_offload = 'always'")
        query = f"SELECT count(*), sum(l_tax) FROM read_parquet('{tables}/lineitem/*') WHERE l_tax > 0.01"
        rows, stock = pushed_and_read(con, query)
        assert rows == stock


def test_memory_stays_flat(cluster, pushed):
    """The memory of the client and of the OSDs, after any number of calls."""
    query = "SELECT sum(l_tax), count(*) FROM lineitem WHERE l_quantity < 40"
    pushed.execute("SET rados_offload_in_flight = 12")
    pushed.execute("SET rados_offload_cache = false")
    answer = pushed.execute(query).fetchall()

    def memory_mib() -> tuple[int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        osds = sum(cluster.daemon(name).memory_bytes for name in cluster.daemon_names())
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20, osds >> 20

    def ask(calls: int) -> None:
        until = requests(pushed, "exec") + calls
        while requests(pushed, "exec") < until:
            assert pushed.execute(query).fetchall() == answer

    ask(CALLS // 4)
    before = memory_mib()
    ask(CALLS)
    after = memory_mib()
    print(f"client, OSDs: {before} MiB, after {CALLS} calls {after} MiB")
    assert after[0] < before[0] + 20
    assert after[1] < before[1] + 40


def test_a_damaged_object_is_read(cluster, pushed):
    """No OSD answers where the footer does not match its recorded checksum. Reading decides what it is."""
    path, name = "rados://data/damage/x.parquet", "damage/x.parquet"
    pushed.execute(f"COPY (SELECT range AS a FROM range(1000)) TO '{path}' (FORMAT parquet)")
    good = pushed.execute(f"SELECT content FROM read_blob('{path}')").fetchone()[0]
    footer = struct.unpack("<I", good[-8:-4])[0] + 8
    query = f"SELECT sum(a) FROM read_parquet('{path}')"
    pool = Pool(cluster.conf, cluster.keyring, "data")
    unnoticed = 0
    for place in range(len(good) - footer, len(good), 7):
        damaged = bytearray(good)
        damaged[place] ^= 1
        pool.write(name, bytes(damaged))
        try:
            read = pushed.execute("SET rados_offload = 'never'").execute(query).fetchall()
        except duckdb.Error:
            continue
        unnoticed += 1
        pushed.execute("SET rados_offload = 'always'")
        assert pushed.execute(query).fetchall() == read
        scan = last_offloaded(pushed)
        assert (scan["answered"], scan["fell_back"]) == (0, 1)
        assert "checksum" in scan["fallback_reasons"]
    pool.close()
    assert unnoticed > 5


def test_an_osd_dies_while_queries_run(cluster, pushed):
    reference = tpch.Reference(SOURCE, SCALE)

    def disturb():
        cluster.daemon("osd.1").kill()
        cluster.wait(lambda: cluster.osds_up() == 2, "the monitor has noticed", dead=("osd.1",))

    thread = threading.Thread(target=disturb)
    try:
        thread.start()
        answers = 0
        while thread.is_alive() or answers < 2:
            for number in (1, 6):
                rows = pushed.execute(reference.query(number)).fetchall()
                assert tpch.difference(rows, reference.answer(number)) == ""
                answers += 1
    finally:
        thread.join()
        cluster.restart("osd.1")
