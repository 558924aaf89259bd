"""gpu_segments(): which rows of a table kernels decode, where they lie, and why DuckDB scans the others."""

from __future__ import annotations

import struct
from contextlib import contextmanager

import duckdb
import pytest
import rawduck
from gpu_support import checksum_of, scanned
from rawduck.render import rows

ROWS = 200_000  # two row groups, one of them not full
#: What precedes the first block of a database file.
BLOCKS_START = 3 * 4096


@contextmanager
def table_in(path, query=f"SELECT i, i % 7 AS k FROM range({ROWS}) r(i)"):
    """A connection to a database with a checkpointed table t."""
    with rawduck.connect(path) as connection:
        connection.execute(f"CREATE TABLE t AS {query}")
        connection.execute("CHECKPOINT")
        yield connection


def routes(connection, table="t"):
    """Of each column, the routes and reasons of its row groups."""
    query = "SELECT DISTINCT column_name, row_group, route, reason FROM gpu_segments(?) ORDER BY ALL"
    found = {}
    for row in rows(connection, query, [table]):
        found.setdefault(row["column_name"], []).append((row["row_group"], row["route"], row["reason"]))
    return found


def test_a_clean_table_is_decoded(tmp_path):
    with table_in(tmp_path / "t.db") as connection:
        assert routes(connection) == {
            "i": [(0, "gpu", None), (1, "gpu", None)],
            "k": [(0, "gpu", None), (1, "gpu", None)],
        }


def test_segments_cover_the_rows(tmp_path):
    with table_in(tmp_path / "t.db") as connection:
        query = """SELECT column_name, part, sum(rows) AS rows FROM gpu_segments('t') GROUP BY ALL"""
        assert {row["rows"] for row in rows(connection, query)} == {ROWS}
        by_group = """SELECT row_group, sum(rows) = any_value(row_group_rows)
            AND bool_and(visible_rows = row_group_rows) AS covered
            FROM gpu_segments('t') WHERE part = 'data' AND column_name = 'i' GROUP BY ALL"""
        assert [row["covered"] for row in rows(connection, by_group)] == [True, True]


@pytest.mark.parametrize("scheme", ["", "direct://"])
def test_bytes_lie_where_the_plan_says(tmp_path, scheme):
    """Plain values are found in the file at the place that is told."""
    path = tmp_path / "t.db"
    with rawduck.connect(f"{scheme}{path}") as connection:
        connection.execute("SET force_compression = 'uncompressed'")
        connection.execute("CREATE TABLE t AS SELECT (i * 1000003) AS i FROM range(1000) r(i)")
        connection.execute("CHECKPOINT")
        (segment,) = rows(connection, "FROM gpu_segments('t') WHERE part = 'data'")
    assert (segment["codec"], segment["rows"], segment["persistent"]) == ("Uncompressed", 1000, True)
    with open(path, "rb") as file:
        file.seek(BLOCKS_START + segment["block"] * 262144 + 8 + segment["block_offset"])
        values = struct.unpack("<1000q", file.read(8000))
    assert values == tuple(i * 1000003 for i in range(1000))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_deleted_rows_do_not_change_the_route(tmp_path, checkpoint):
    with table_in(tmp_path / "t.db") as connection:
        connection.execute("DELETE FROM t WHERE i % 1000 = 7")
        if checkpoint:
            connection.execute("CHECKPOINT")
        assert {route for found in routes(connection).values() for _, route, _ in found} == {"gpu"}
        query = "SELECT sum(DISTINCT visible_rows) AS visible FROM gpu_segments('t')"
        (visible,) = rows(connection, query)
        assert visible["visible"] == connection.execute("SELECT count(*) FROM t").fetchone()[0]


def test_an_updated_column_of_a_row_group_is_scanned_by_duckdb(tmp_path):
    """The other column, and the other row group, are decoded as before."""
    with table_in(tmp_path / "t.db") as connection:
        connection.execute("UPDATE t SET k = 99 WHERE i = 5")
        assert routes(connection) == {
            "i": [(0, "gpu", None), (1, "gpu", None)],
            "k": [(0, "duckdb", "updates that no checkpoint has merged"), (1, "gpu", None)],
        }
        connection.execute("CHECKPOINT")
        assert routes(connection)["k"] == [(0, "gpu", None), (1, "gpu", None)]


def test_an_update_to_null_counts(tmp_path):
    with table_in(tmp_path / "t.db") as connection:
        connection.execute("UPDATE t SET k = NULL WHERE i = 5")
        assert routes(connection)["k"][0][1] == "duckdb"


def test_appended_rows_are_scanned_by_duckdb(tmp_path):
    with table_in(tmp_path / "t.db") as connection:
        connection.execute("INSERT INTO t SELECT i, 1 FROM range(10) r(i)")
        found = routes(connection)["i"]
        assert found[0] == (0, "gpu", None)
        assert found[-1][1:] == ("duckdb", "rows that no checkpoint has written")


def test_rows_of_the_transaction_are_listed(tmp_path):
    with table_in(tmp_path / "t.db") as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t SELECT i, 1 FROM range(10) r(i)")
        connection.execute("DELETE FROM t WHERE i = 3")
        (local,) = rows(connection, "FROM gpu_segments('t') WHERE row_group IS NULL AND column_name = 'i'")
        assert (local["rows"], local["route"], local["reason"]) == (9, "duckdb", "rows of this transaction")
        connection.execute("ROLLBACK")
        assert None not in {group for group, _, _ in routes(connection)["i"]}


def test_another_transaction_keeps_what_it_saw(tmp_path):
    with table_in(tmp_path / "t.db") as connection, connection.cursor() as other:
        other.execute("BEGIN")
        query = "SELECT DISTINCT row_group, visible_rows FROM gpu_segments('t') ORDER BY ALL"
        before = other.execute(query).fetchall()
        connection.execute("DELETE FROM t WHERE i < 1000")
        assert other.execute(query).fetchall() == before
        assert connection.execute(query).fetchall() != before


def test_nested_columns_are_scanned_by_duckdb(tmp_path):
    with table_in(
        tmp_path / "t.db", "SELECT [i] AS list, {'x': i} AS struct FROM range(10) r(i)"
    ) as connection:
        assert routes(connection) == {
            "list": [(0, "duckdb", "type BIGINT[]")],
            "struct": [(0, "duckdb", "type STRUCT(x BIGINT)")],
        }


def test_a_segment_that_is_said_to_begin_behind_its_block(tmp_path):
    """In a file as of DuckDB 1.2, which does not say how long segments are: nothing is read there."""
    path = tmp_path / "t.db"
    with rawduck.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS d (STORAGE_VERSION 'v1.2.0'); USE d")
        connection.execute("SET force_compression = 'uncompressed'")
        connection.execute("CREATE TABLE t AS SELECT i, i * 3 AS k FROM range(4000) r(i); CHECKPOINT d")
    # 32,000 and 2,000,000, as DuckDB writes them.
    offset, behind = b"\x65\x00\x80\xfa\x01", b"\x65\x00\x80\x89\x7a"
    with open(path, "r+b") as file:
        file.seek(BLOCKS_START)
        metadata = file.read(262144)
        assert metadata.count(offset) == 1
        metadata = metadata.replace(offset, behind)
        file.seek(BLOCKS_START)
        file.write(checksum_of(metadata) + metadata[8:])
    with rawduck.connect(path, read_only=True) as connection:
        sizes = "SELECT column_name, bytes FROM gpu_segments('t') WHERE part = 'data' ORDER BY ALL"
        assert connection.execute(sizes).fetchall() == [("i", 262136), ("k", 0)]
        assert scanned(connection, "t", ["i"], device="emulated") == [list(range(4000))]
        with pytest.raises(rawduck.RawduckError, match="cannot be decoded"):
            scanned(connection, "t", ["k"], device="emulated")


def test_encrypted_databases_are_scanned_by_duckdb(tmp_path):
    with rawduck.connect() as connection:
        connection.execute("SET force_mbedtls_unsafe = 'true'")
        connection.execute(f"ATTACH '{tmp_path / 'e.db'}' AS e (ENCRYPTION_KEY 'secret')")
        connection.execute("CREATE TABLE e.t AS SELECT i FROM range(10) r(i)")
        connection.execute("CHECKPOINT e")
        assert routes(connection, "e.t") == {"i": [(0, "duckdb", "encrypted database")]}


def test_tables_in_memory_are_scanned_by_duckdb(con):
    con.execute("CREATE TABLE t AS SELECT i FROM range(10) r(i)")
    assert routes(con)["i"] == [(0, "duckdb", "database in memory")]


def test_compressed_databases_in_memory_are_scanned_by_duckdb(con):
    """Their constants have no blocks, and could be decoded; the others have blocks that no file holds."""
    con.execute("ATTACH ':memory:' AS m (COMPRESS)")
    con.execute("CREATE TABLE m.t AS SELECT 7 AS same, i FROM range(10) r(i)")
    con.execute("CHECKPOINT m")
    assert routes(con, "m.t") == {
        "i": [(0, "duckdb", "database in memory")],
        "same": [(0, "duckdb", "database in memory")],
    }


def test_generated_columns_are_named(con):
    con.execute("CREATE TABLE t (i INTEGER, twice INTEGER GENERATED ALWAYS AS (i * 2))")
    con.execute("INSERT INTO t (i) VALUES (4)")
    found = routes(con)
    assert list(found) == ["i", "twice"]
    assert found["twice"] == [(None, "query", "generated: computed, not stored")]


def test_an_empty_table_has_no_segments(con):
    con.execute("CREATE TABLE t (i INTEGER)")
    assert rows(con, "FROM gpu_segments('t')") == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "missing"),
        ("v", "no table in DuckDB's own storage"),
        ("duckdb_settings", "duckdb_settings"),
        ("", "table is NULL or empty"),
        ('"', '"'),
    ],
)
def test_what_is_no_table_is_refused(con, name, message):
    con.execute("CREATE VIEW v AS SELECT 1")
    with pytest.raises(duckdb.Error, match=message):
        con.execute("FROM gpu_segments(?)", [name])
