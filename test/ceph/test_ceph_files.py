"""rados:// as a file system of DuckDB: reading, writing, listing, replacing."""

from __future__ import annotations

import duckdb
import pytest
from ceph_support import connect, names, one, rados, requests
from class_protocol import Pool

ROWS = 1_500_000
TABLE = f"(SELECT i, hash(i) AS h, 'row ' || i AS s FROM range({ROWS}) t(i))"
SUMS = "count(*), sum(i), sum(length(s)), bit_xor(h)"


def sums(con, source: str) -> tuple:
    return con.execute(f"SELECT {SUMS} FROM {source}").fetchone()


def test_a_table_becomes_objects_of_a_good_size(con, prefix):
    con.execute(f"COPY {TABLE} TO '{prefix}' (FORMAT parquet)")
    sizes = [row[0] for row in con.execute(f"SELECT size FROM read_blob('{prefix}/*')").fetchall()]
    assert len(sizes) >= 3
    assert max(sizes) <= 16_000_000
    assert sum(size >= 4_000_000 for size in sizes) >= len(sizes) - 2, sizes
    assert sums(con, f"read_parquet('{prefix}/*')") == sums(con, TABLE)
    # Every object is a Parquet file by itself.
    rows = [one(con, f"SELECT count(*) FROM read_parquet('{name}')") for name in names(con, f"{prefix}/*")]
    assert sum(rows) == ROWS
    assert min(rows) > 0


def test_the_prefix_alone_is_read_too(con, data_prefix):
    con.execute(f"COPY (SELECT 42 AS a) TO '{data_prefix}' (FORMAT parquet)")
    assert con.execute(f"FROM read_parquet('{data_prefix}')").fetchall() == [(42,)]


def test_one_object_where_a_file_is_named(con, prefix):
    con.execute(f"COPY {TABLE} TO '{prefix}/one.parquet'")
    assert names(con, f"{prefix}/**") == [f"{prefix}/one.parquet"]
    assert sums(con, f"'{prefix}/one.parquet'") == sums(con, TABLE)


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_formats(con, prefix, format):
    con.execute(f"COPY (SELECT i, i * i AS j FROM range(1000) t(i)) TO '{prefix}/x.{format}'")
    assert con.execute(f"SELECT count(*), sum(j) FROM '{prefix}/x.{format}'").fetchone() == (1000, 332833500)


def test_own_file_size(con, data_prefix):
    options = "(FORMAT parquet, FILE_SIZE_BYTES '1MB', ROW_GROUP_SIZE 20480)"
    con.execute(f"COPY {TABLE} TO '{data_prefix}' {options}")
    sizes = [row[0] for row in con.execute(f"SELECT size FROM read_blob('{data_prefix}/*')").fetchall()]
    assert max(sizes) < 2_000_000
    assert sums(con, f"read_parquet('{data_prefix}/*')") == sums(con, TABLE)


def test_partitions(con, data_prefix):
    query = "(SELECT i, i % 3 AS part FROM range(1000) t(i))"
    con.execute(f"COPY {query} TO '{data_prefix}' (FORMAT parquet, PARTITION_BY part)")
    assert len(names(con, f"{data_prefix}/part=*/*.parquet")) == 3
    assert one(con, f"SELECT sum(i) FROM read_parquet('{data_prefix}/**') WHERE part = 2") == sum(
        range(2, 1000, 3)
    )


def test_what_ceph_itself_sees(con, cluster, prefix):
    """The object has the bytes of the file, without striping or metadata."""
    pool, _, folder = prefix.removeprefix("rados://").partition("/")
    con.execute(f"COPY (SELECT 'hello' AS a) TO '{prefix}/a.csv' (HEADER false)")
    assert rados(cluster, "-p", pool, "get", f"{folder}/a.csv", "-") == b"hello\n"
    rados(cluster, "-p", pool, "put", f"{folder}/b.csv", "-", data=b"1\n2\n")
    assert one(con, f"SELECT sum(a) FROM read_csv('{prefix}/b.csv', names=['a'], header=false)") == 3


def test_patterns(con, data_prefix):
    for name in ("a.csv", "b.csv", "deep/c.csv", "deep/er/d.csv", "[odd].csv"):
        con.execute(f"COPY (SELECT 1) TO '{data_prefix}/{name}'")
    found = {pattern: names(con, f"{data_prefix}/{pattern}") for pattern in ("*", "?.csv", "**", "d*/*.csv")}
    short = {key: [name.removeprefix(data_prefix + "/") for name in value] for key, value in found.items()}
    assert short["*"] == ["[odd].csv", "a.csv", "b.csv"]
    assert short["?.csv"] == ["a.csv", "b.csv"]
    assert short["**"] == ["[odd].csv", "a.csv", "b.csv", "deep/c.csv", "deep/er/d.csv"]
    assert short["d*/*.csv"] == ["deep/c.csv"]


def test_every_object_of_a_large_pool_is_listed_once(con, cluster):
    """More names than fit in one reply; the number of placement groups is not a power of two."""
    cluster.create_pool("many", groups=11)
    expected = [f"a/{number:05}" for number in range(9000)]
    pool = Pool(cluster.conf, cluster.keyring, "many")
    for name in expected:
        pool.write(name, b"x")
    pool.write("b", b"x")
    pool.close()
    assert names(con, "rados://many/a/*") == [f"rados://many/{name}" for name in expected]
    assert names(con, "rados://many/*") == ["rados://many/b"]
    assert names(con, "rados://many/a/0123?") == [f"rados://many/a/0123{digit}" for digit in range(10)]


def test_a_query_lists_a_pool_once(con, data_prefix):
    """The next query lists it again, also in the same transaction."""

    def write(name: str) -> None:
        con.execute(f"COPY (SELECT 1 AS a) TO '{data_prefix}/{name}.parquet' (FORMAT parquet)")

    for name in ("x1", "y1", "y2"):
        write(name)
    count = f"""SELECT (SELECT count(*) FROM read_parquet('{data_prefix}/x*')),
                       (SELECT count(*) FROM read_parquet('{data_prefix}/y*'))"""
    before = requests(con, "list")
    assert con.execute(count).fetchall() == [(1, 2)]
    assert requests(con, "list") == before + 1
    write("x2")
    assert con.execute(count).fetchall() == [(2, 2)]
    con.begin()
    assert con.execute(count).fetchall() == [(2, 2)]
    write("y3")
    write("x3")
    assert con.execute(count).fetchall() == [(3, 3)]
    con.commit()


def test_an_existing_prefix_is_not_mixed_with_new_objects(con, data_prefix):
    copy = f"COPY (SELECT {{}} AS a) TO '{data_prefix}' (FORMAT parquet{{}})"
    con.execute(copy.format(1, ""))
    with pytest.raises(duckdb.IOException, match="not empty"):
        con.execute(copy.format(2, ""))
    assert one(con, f"FROM read_parquet('{data_prefix}/*')") == 1
    con.execute(copy.format(3, ", OVERWRITE"))
    assert one(con, f"FROM read_parquet('{data_prefix}/*')") == 3


FAILING = "(SELECT CASE WHEN i = 1400000 THEN error('stop') ELSE i END AS i FROM range(1500000) t(i))"


def test_a_failed_copy_leaves_nothing(con, prefix):
    for target in (prefix, f"{prefix}/one.parquet", f"{prefix}/one.csv"):
        with pytest.raises(duckdb.Error, match="stop"):
            con.execute(f"COPY {FAILING} TO '{target}' (FORMAT {'csv' if 'csv' in target else 'parquet'})")
        assert names(con, f"{prefix}/**") == []


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_failed_copy_leaves_the_old_object(con, prefix, format):
    con.execute(f"COPY (SELECT 7 AS i) TO '{prefix}/x.{format}'")
    with pytest.raises(duckdb.Error, match="stop"):
        con.execute(f"COPY {FAILING} TO '{prefix}/x.{format}'")
    assert con.execute(f"SELECT i FROM '{prefix}/x.{format}'").fetchall() == [(7,)]


def test_an_abandoned_file_is_no_object(con, data_prefix):
    """DuckDB neither closes nor aborts a file of this format when a COPY fails."""
    con.execute("SET async_threads = 0")
    rows = "SELECT CASE WHEN i = 90000 THEN error('stop') ELSE 'x'::BLOB END FROM range(100000) t(i)"
    with pytest.raises(duckdb.Error, match="stop"):
        con.execute(f"COPY ({rows}) TO '{data_prefix}/x.bin' (FORMAT blob)")
    assert names(con, f"{data_prefix}/**") == []


def test_a_failed_overwrite_leaves_nothing(con, prefix):
    """It has removed the old objects before its first row, and then removes its own."""
    con.execute("SET async_threads = 0")
    options = "FORMAT parquet, FILE_SIZE_BYTES '1MB', ROW_GROUP_SIZE 20480"
    con.execute(f"COPY (SELECT 1 AS i) TO '{prefix}' ({options})")
    with pytest.raises(duckdb.Error, match="stop"):
        con.execute(f"COPY {FAILING} TO '{prefix}' ({options}, OVERWRITE)")
    assert names(con, f"{prefix}/**") == []


def test_a_failed_copy_leaves_what_another_one_has_published(con, cluster, prefix):
    """Both find that the name is free. The one that is complete later fails."""
    path = f"{prefix}/x.parquet"

    def copy_other(i: int) -> int:
        con.execute(f"COPY (SELECT 7 AS i) TO '{path}'")
        return i

    with connect(cluster) as late:
        late.execute("SET async_threads = 0")  # it opens its file before its query runs
        late.create_function("copy_other", copy_other, ["BIGINT"], "BIGINT", side_effects=True)
        with pytest.raises(duckdb.Error, match="there already"):
            late.execute(f"COPY (SELECT copy_other(1) AS i) TO '{path}'")
    assert con.execute(f"SELECT i FROM '{path}'").fetchall() == [(7,)]


def test_a_failed_copy_removes_only_what_is_still_its_own(con, cluster, prefix):
    """Another one replaces the first of the objects that it has published."""
    replaced = []

    def replace_first(i: int) -> int:
        if i == 90_000:
            published = names(con, f"{prefix}/*")
            assert len(published) >= 2
            replaced.append(published[0])
            con.execute(f"COPY (SELECT 7 AS i) TO '{published[0]}'")
            raise ValueError("stop")
        return i

    options = "FORMAT parquet, FILE_SIZE_BYTES '1KB', ROW_GROUP_SIZE 20480"
    with connect(cluster) as failing:
        failing.execute("SET threads = 1; SET async_threads = 0")
        failing.create_function("replace_first", replace_first, ["BIGINT"], "BIGINT", side_effects=True)
        with pytest.raises(duckdb.Error, match="stop"):
            failing.execute(
                f"COPY (SELECT replace_first(i) AS i FROM range(100000) t(i)) TO '{prefix}' ({options})"
            )
    assert names(con, f"{prefix}/*") == replaced
    assert one(con, f"SELECT i FROM '{replaced[0]}'") == 7


@pytest.mark.parametrize("optimizer", ["enable_optimizer", "disable_optimizer"])
def test_a_database_is_exported_and_imported(con, cluster, data_prefix, optimizer):
    con.execute(f"PRAGMA {optimizer}")
    con.execute("CREATE TABLE t AS SELECT 1 AS a; CREATE VIEW v AS FROM t")
    con.execute(f"EXPORT DATABASE '{data_prefix}' (FORMAT parquet)")
    assert names(con, f"{data_prefix}/**") == [
        f"{data_prefix}/{name}" for name in ("load.sql", "schema.sql", "t.parquet")
    ]
    with connect(cluster) as fresh:
        fresh.execute(f"IMPORT DATABASE '{data_prefix}'")
        assert fresh.execute("FROM v").fetchall() == [(1,)]


def test_a_database_without_tables_is_exported(con, cluster, data_prefix):
    con.execute("CREATE SCHEMA s")
    con.execute(f"EXPORT DATABASE '{data_prefix}'")
    with connect(cluster) as fresh:
        fresh.execute(f"IMPORT DATABASE '{data_prefix}'")
        fresh.execute("CREATE TABLE s.t (a INTEGER)")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("options", ["", ", OVERWRITE"])
@pytest.mark.parametrize(
    "name",
    ["t//x.parquet", "t/./x.parquet", "t/../x.parquet", "t/a\\b.parquet", "t/", "t/a?b/x.parquet"],
)
def test_objects_to_which_no_path_leads(con, cluster, data_prefix, name, options):
    """DuckDB would list one directory for ever, or remove another object."""
    folder = data_prefix.removeprefix("rados://data/")
    stored = [f"{folder}/{name}", f"{folder}/t/a/b.parquet"]
    for path in stored:
        rados(cluster, "-p", "data", "put", path, "-", data=b"x")
    with pytest.raises(duckdb.IOException) as caught:
        con.execute(f"COPY (SELECT 1 AS a) TO '{data_prefix}/t' (FORMAT parquet{options})")
    assert stored[0] in str(caught.value)
    assert set(stored) <= set(rados(cluster, "-p", "data", "ls").decode().splitlines())


@pytest.mark.parametrize("name", ["/x.csv", "./x.csv", "../x.csv", "a\\b.csv"])
def test_names_that_paths_change_are_not_written(con, data_prefix, name):
    with pytest.raises(duckdb.InvalidInputException, match="of another one"):
        con.execute(f"COPY (SELECT 1) TO '{data_prefix}/{name}'")


@pytest.mark.parametrize("name", ["/t", "./t", "../t", "a\\t", "t?x"])
def test_prefixes_that_paths_change_are_not_written(con, data_prefix, name):
    with pytest.raises(duckdb.InvalidInputException, match="another prefix"):
        con.execute(f"COPY (SELECT 1 AS a) TO '{data_prefix}/{name}' (FORMAT parquet)")


def test_a_replaced_object_is_read_anew(con, prefix):
    """Also where DuckDB caches the content of files."""
    con.execute("SET cache_local_files = true")
    for value in (1, 2):
        con.execute(f"COPY (SELECT {value} AS a FROM range(100000)) TO '{prefix}/x.parquet'")
        before = requests(con, "read", "bytes")
        for _ in range(2):
            assert one(con, f"SELECT sum(a) FROM '{prefix}/x.parquet'") == value * 100000
        first = requests(con, "read", "bytes") - before
        assert one(con, f"SELECT sum(a) FROM '{prefix}/x.parquet'") == value * 100000
        assert requests(con, "read", "bytes") - before == first, "the second reading came from the cache"


def test_versions_are_not_mixed(con, cluster, data_prefix):
    """Replacing an object during a read is an error; versions are never mixed."""
    con.execute("SET threads = 1")
    path = f"{data_prefix}/x.csv"
    pool, _, name = path.removeprefix("rados://").partition("/")
    con.execute(f"COPY (SELECT 'old' AS a, repeat('x', 1000) AS b FROM range(75000)) TO '{path}'")

    # The result is fetched while the scan goes on, a little ahead of the fetching.
    con.execute("SET streaming_buffer_size = '100KB'")
    source = f"read_csv('{path}', header=true, parallel=false, buffer_size=3000000)"
    reader = con.execute(f"SELECT a, b FROM {source}")
    assert reader.fetchone()[0] == "old"
    rados(cluster, "-p", pool, "put", name, "-", data=b"a,b\n" + b"new,y\n" * 9_000_000)
    with pytest.raises(duckdb.IOException, match=r"rados://data/.*replaced since the query has opened it"):
        reader.fetchall()


def test_an_object_that_is_too_large_is_refused(con, data_prefix):
    # DuckDB 2.0.0 may wait for itself for ever when it abandons asynchronous writes: AbortWrites() holds the
    # lock that a write in flight takes when it ends.
    con.execute("SET async_threads = 0")
    query = "(SELECT repeat(uuid()::VARCHAR, 30) AS a FROM range(100000))"
    with pytest.raises(duckdb.IOException, match=r"larger than 80 MiB.*FILE_SIZE_BYTES"):
        con.execute(f"COPY {query} TO '{data_prefix}/x.parquet' (COMPRESSION uncompressed)")
    assert names(con, f"{data_prefix}/**") == []


def test_a_database_is_read_but_not_written(con, cluster, data_prefix, tmp_path):
    con.execute(f"ATTACH '{tmp_path}/x.duckdb' AS x; CREATE TABLE x.t AS FROM range(100000) t(i); DETACH x")
    pool, _, folder = data_prefix.removeprefix("rados://").partition("/")
    data = (tmp_path / "x.duckdb").read_bytes()
    rados(cluster, "-p", pool, "put", f"{folder}/x.duckdb", "-", data=data)
    con.execute(f"ATTACH '{data_prefix}/x.duckdb' AS y (READ_ONLY)")
    assert one(con, "SELECT sum(i) FROM y.t") == 4999950000
    with pytest.raises(duckdb.Error, match="READ_ONLY"):
        con.execute(f"ATTACH '{data_prefix}/z.duckdb' AS z")


def test_only_the_columns_that_are_asked_for_are_moved(con, prefix):
    con.execute(f"COPY {TABLE} TO '{prefix}' (FORMAT parquet)")
    con.execute("CALL rados_reset_stats()")
    con.execute(f"SELECT count(*) FROM read_parquet('{prefix}/*')").fetchall()
    footers = requests(con, "read", "bytes")
    con.execute("CALL rados_reset_stats()")
    sums(con, f"read_parquet('{prefix}/*')")
    everything = requests(con, "read", "bytes")
    size = one(con, f"SELECT sum(size)::BIGINT FROM read_blob('{prefix}/*')")
    assert footers < size / 50
    assert size * 0.9 < everything < size * 1.2
