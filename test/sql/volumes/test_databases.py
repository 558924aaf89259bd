"""Databases on volumes: everything that DuckDB does with files."""

from __future__ import annotations

import duckdb
import pytest
import rawduck
from support import attach, file_names, one


def test_persists(target):
    with rawduck.connect(target.path("sales.duckdb")) as con:
        con.execute("CREATE TABLE orders AS SELECT range AS id, 'text ' || range AS note FROM range(100000)")
    with rawduck.connect(target.path("sales.duckdb")) as con:
        assert con.execute("SELECT count(*), sum(id), max(note) FROM orders").fetchone() == (
            100000,
            4999950000,
            "text 99999",
        )


def test_many_databases_on_one_volume(target, con):
    names = [attach(con, target, f"db{i}.duckdb") for i in range(8)]
    for i, name in enumerate(names):
        con.execute(f"CREATE TABLE {name}.t AS SELECT range * {i} AS v FROM range(10000)")
    for i, name in enumerate(names):
        assert one(con, f"SELECT sum(v) FROM {name}.t") == i * 49995000
    assert set(file_names(con, target)) >= {f"db{i}.duckdb" for i in range(8)}
    joined = "SELECT count(*) FROM db1.t JOIN db2.t ON db2.t.v = 2 * db1.t.v"
    assert one(con, joined) == 10000


def test_several_volumes_at_once(new_target, con):
    targets = [new_target("file-4096"), new_target("file-512"), new_target("memory-4096")]
    for i, volume in enumerate(targets):
        attach(con, volume, f"v{i}.duckdb")
        con.execute(f"CREATE TABLE v{i}.t AS SELECT range + {i} AS x FROM range(1000)")
    mounted = {row[0] for row in con.execute("SELECT target FROM nvme_volumes()").fetchall()}
    assert {volume.name for volume in targets} <= mounted
    sums = [one(con, f"SELECT sum(x) FROM v{i}.t") for i in range(3)]
    assert sums == [499500, 500500, 501500]


def test_same_file_name_on_two_volumes(new_target, con):
    first, second = new_target("file-4096"), new_target("memory-512")
    con.execute(f"ATTACH '{first.path('x.duckdb')}' AS a")
    con.execute(f"ATTACH '{second.path('x.duckdb')}' AS b")
    con.execute("CREATE TABLE a.t AS SELECT 1 AS v; CREATE TABLE b.t AS SELECT 2 AS v")
    assert (one(con, "SELECT v FROM a.t"), one(con, "SELECT v FROM b.t")) == (1, 2)


def test_detach_and_attach_again(target, con):
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT range AS v FROM range(5000)")
    for round_number in range(5):
        con.execute("DETACH x")
        attach(con, target, "x.duckdb")
        assert one(con, "SELECT count(*) FROM x.t") == 5000 + round_number
        con.execute(f"INSERT INTO x.t VALUES ({round_number})")


def test_detach_of_the_last_database_unmounts(file_target, con):
    attach(con, file_target, "x.duckdb")
    assert one(con, "SELECT count(*) FROM nvme_volumes() WHERE target = ?", file_target.name) == 1
    con.execute("DETACH x")
    assert one(con, "SELECT count(*) FROM nvme_volumes() WHERE target = ?", file_target.name) == 0


def test_read_only(target, con):
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t AS SELECT 42 AS v; DETACH x")
    attach(con, target, "x.duckdb", "(READ_ONLY)")
    assert one(con, "SELECT v FROM x.t") == 42
    with pytest.raises(duckdb.InvalidInputException, match="read-only"):
        con.execute("INSERT INTO x.t VALUES (1)")


def test_read_only_of_a_missing_database(target, con):
    with pytest.raises(duckdb.IOException, match=r"missing\.duckdb"):
        attach(con, target, "missing.duckdb", "(READ_ONLY)")
    assert file_names(con, target) == []


def test_connect_read_only(target):
    with rawduck.connect(target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS v")
    with rawduck.connect(target.path("x.duckdb"), read_only=True) as con:
        assert one(con, "SELECT v FROM t") == 42
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            con.execute("CREATE TABLE u (v INTEGER)")


def test_copy_from_database(target, con, tmp_path):
    con.execute(f"ATTACH '{tmp_path}/stock.duckdb' AS stock")
    con.execute("CREATE TABLE stock.t AS SELECT range AS v, repeat('x', 50) AS s FROM range(50000)")
    con.execute("CREATE INDEX i ON stock.t (v); CREATE VIEW stock.w AS SELECT count(*) AS c FROM stock.t")
    attach(con, target, "copy.duckdb")
    con.execute("COPY FROM DATABASE stock TO copy; DETACH copy")
    attach(con, target, "copy.duckdb")
    difference = "SELECT count(*) FROM (SELECT * FROM stock.t EXCEPT ALL SELECT * FROM copy.t)"
    assert one(con, "SELECT count(*) FROM copy.t") == 50000
    assert one(con, difference) == 0
    assert one(con, "SELECT count(*) FROM duckdb_indexes() WHERE database_name = 'copy'") == 1


def test_encryption(target, con):
    con.execute("SET force_mbedtls_unsafe = 'true'")  # the wheel's own cipher; the other is in httpfs
    options = "(ENCRYPTION_KEY 'a secret')"
    attach(con, target, "secret.duckdb", options)
    con.execute("CREATE TABLE secret.t AS SELECT range AS v FROM range(20000); DETACH secret")
    attach(con, target, "secret.duckdb", options)
    assert one(con, "SELECT sum(v) FROM secret.t") == 199990000
    con.execute("DETACH secret")
    with pytest.raises(duckdb.Error, match=r"(?i)key|encrypt"):
        attach(con, target, "secret.duckdb")
    with pytest.raises(duckdb.Error, match=r"(?i)key|encrypt"):
        attach(con, target, "secret.duckdb", "(ENCRYPTION_KEY 'wrong')")


@pytest.mark.parametrize("block_size", [16384, 262144])
def test_block_size(target, con, block_size):
    attach(con, target, "small.duckdb", f"(BLOCK_SIZE {block_size})")
    con.execute("CREATE TABLE small.t AS SELECT range AS v, range::VARCHAR AS s FROM range(200000)")
    con.execute("CHECKPOINT small")
    assert (
        one(con, "SELECT block_size FROM pragma_database_size() WHERE database_name = 'small'") == block_size
    )
    con.execute("DETACH small")
    attach(con, target, "small.duckdb")
    assert con.execute("SELECT sum(v), max(s) FROM small.t").fetchone() == (19999900000, "99999")


def test_export_and_import(target, con):
    attach(con, target, "x.duckdb")
    con.execute("USE x; CREATE TABLE t AS SELECT range AS v, 'n' || range AS s FROM range(3000)")
    con.execute(f"EXPORT DATABASE '{target.path('dump')}' (FORMAT parquet)")
    assert {"dump/schema.sql", "dump/load.sql", "dump/t.parquet"} <= set(file_names(con, target))
    attach(con, target, "y.duckdb")
    con.execute(f"USE y; IMPORT DATABASE '{target.path('dump')}'")
    assert con.execute("SELECT count(*), sum(v), max(s) FROM y.t").fetchone() == (3000, 4498500, "n999")


def test_parquet_and_csv_on_a_volume(target, con):
    for suffix in ("parquet", "csv"):
        path = target.path(f"out/data.{suffix}")
        con.execute(f"COPY (SELECT range AS v FROM range(70000)) TO '{path}'")
        assert one(con, f"SELECT sum(v) FROM '{path}'") == 2449965000
    assert one(con, f"SELECT count(*) FROM glob('{target.path('out/*')}')") == 2


def test_appends_of_any_length_keep_their_neighbours(target, con):
    """The write-ahead log grows by odd lengths that share LBAs; each commit must leave the others whole."""
    con.execute("SET wal_autocheckpoint = '1GB'; SET checkpoint_on_detach = 'DISABLED'")
    attach(con, target, "x.duckdb")
    con.execute("CREATE TABLE x.t (n INTEGER, s VARCHAR)")
    for n in range(200):
        con.execute("INSERT INTO x.t VALUES (?, ?)", [n, "ab"[n % 2] * (n * 7 % 997)])
    con.execute("DETACH x")
    assert one(con, "SELECT size FROM nvme_files(?) WHERE name = 'x.duckdb.wal'", target.name) > 0
    attach(con, target, "x.duckdb")
    expected = [(n, "ab"[n % 2] * (n * 7 % 997)) for n in range(200)]
    assert con.execute("SELECT * FROM x.t ORDER BY n").fetchall() == expected


TABLE = "AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(500000)"


def test_space_comes_back(target, con, tmp_path):
    """The file shrinks whenever stock DuckDB's would, and the volume gets the space."""

    def used() -> int:
        return one(con, "SELECT used FROM nvme_info(?)", target.name)

    stock = tmp_path / "stock.duckdb"
    con.execute(f"ATTACH '{stock}' AS stock")
    before = used()
    attach(con, target, "x.duckdb")
    for name in ("x", "stock"):
        con.execute(f"CREATE TABLE {name}.a {TABLE}; CHECKPOINT {name}; CREATE TABLE {name}.b {TABLE}")
        con.execute(f"CHECKPOINT {name}")
    full = used()
    for name in ("x", "stock"):
        con.execute(f"DROP TABLE {name}.b; CHECKPOINT {name}")
    assert used() < before + (full - before) * 0.7
    con.execute("DETACH x; DETACH stock")
    size, allocated = con.execute("SELECT size, allocated FROM nvme_files(?)", [target.name]).fetchone()
    assert size == stock.stat().st_size
    assert allocated == -(-size // 4096) * 4096
    con.execute("SELECT * FROM nvme_remove(?)", [target.path("x.duckdb")])
    assert file_names(con, target) == []
    assert used() == before


def test_transactions(target, con):
    attach(con, target, "x.duckdb")
    con.execute("USE x; CREATE TABLE t (v INTEGER PRIMARY KEY)")
    con.execute("BEGIN; INSERT INTO t SELECT range FROM range(1000); ROLLBACK")
    assert one(con, "SELECT count(*) FROM t") == 0
    con.execute("BEGIN; INSERT INTO t SELECT range FROM range(1000); COMMIT")
    with pytest.raises(duckdb.ConstraintException):
        con.execute("INSERT INTO t VALUES (5)")
    con.execute("DELETE FROM t WHERE v % 2 = 0; UPDATE t SET v = -v; CHECKPOINT")
    con.execute("USE memory; DETACH x")
    attach(con, target, "x.duckdb")
    assert con.execute("SELECT count(*), sum(v) FROM x.t").fetchone() == (500, -250000)
