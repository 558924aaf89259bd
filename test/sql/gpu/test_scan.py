"""gpu.scan on the emulated device gives what SELECT gives, value by value, for every type and codec."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from datetime import UTC, datetime

import duckdb
import pytest
import rawduck
from gpu_support import NULLS, ROWS, TYPES, checksum_of, scanned, selected
from rawduck import gpu
from rawduck.errors import RawduckError

pytestmark = pytest.mark.usefixtures("device")


def make_table(connection, expression, rows, nulls="false"):
    query = f"SELECT CASE WHEN NOT ({nulls}) THEN {expression} END AS x FROM range({rows}) r(i)"
    connection.execute(f"CREATE OR REPLACE TABLE t AS {query}")
    connection.execute("CHECKPOINT")


@pytest.mark.parametrize("type_name", TYPES)
def test_every_type_and_pattern_of_nulls(tmp_path, type_name):
    with rawduck.connect(tmp_path / "t.db") as connection:
        for nulls in NULLS.values():
            make_table(connection, TYPES[type_name], ROWS, nulls)
            assert scanned(connection) == selected(connection)


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 1023, 1024, 1025, 2047, 2048, 2049, 122880, 122881])
def test_sizes_at_the_edges_of_groups(tmp_path, rows):
    with rawduck.connect(tmp_path / "t.db") as connection:
        for type_name in ("BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN"):
            make_table(connection, TYPES[type_name], rows, NULLS["few"])
            assert scanned(connection) == selected(connection), type_name


#: Those that DuckDB writes only when it is told to are among them.
CODECS = {
    "uncompressed": ["BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "HUGEINT"],
    "bitpacking": ["BIGINT", "HUGEINT", "UTINYINT"],
    "rle": ["BIGINT", "DOUBLE", "UTINYINT"],
    "alp": ["DOUBLE", "FLOAT"],
    "alprd": ["DOUBLE (any)", "FLOAT"],
    "dict_fsst": ["VARCHAR", "VARCHAR (long)"],
    "zstd": ["VARCHAR (long)"],
}


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec(tmp_path, codec):
    with rawduck.connect(tmp_path / "t.db") as connection:
        connection.execute(f"SET force_compression = '{codec}'")
        for type_name in CODECS[codec]:
            make_table(connection, TYPES[type_name], ROWS, NULLS["few"])
            written = "SELECT DISTINCT lower(codec) FROM gpu_segments('t') WHERE part = 'data'"
            assert (codec,) in connection.execute(written).fetchall(), type_name
            assert scanned(connection) == selected(connection), type_name


@pytest.mark.parametrize("mode", ["constant", "constant_delta", "delta_for", "for"])
def test_every_mode_of_bit_packing(tmp_path, mode):
    with rawduck.connect(tmp_path / "t.db") as connection:
        connection.execute(f"PRAGMA debug_force_bitpacking_mode = '{mode}'")
        connection.execute("SET force_compression = 'bitpacking'")
        for expression in ("7", "i * 3", "i * i", "hash(i) % 1000"):
            make_table(connection, f"({expression})::BIGINT", 10_000)
            assert scanned(connection) == selected(connection), expression


@pytest.mark.parametrize("scheme", ["nvme", "memory", "direct", "file"])
def test_every_kind_of_database(scheme, tmp_path, file_target):
    path = {
        "nvme": file_target.path("t.duckdb"),
        "memory": f"nvme://memory:kinds-{os.environ['RAWDUCK_GPU']}/t.duckdb",
        "direct": f"direct://{tmp_path / 't.db'}",
        "file": str(tmp_path / "t.db"),
    }[scheme]
    with rawduck.connect(path) as connection:
        connection.execute(
            f"CREATE TABLE t AS SELECT i, i % 7 AS k, 'v' || i % 10 AS s FROM range({ROWS}) r(i)"
        )
        connection.execute("CHECKPOINT")
        reports = []
        rows = 0
        for batch in gpu.scan(connection, "t", ["k", "i"], batch_rows=3_000):
            rows += len(batch)
            reports.append(batch.report)
        assert (rows, len(reports)) == (ROWS, 3)
        assert sum(report["bytes_read"] for report in reports) > 0
        assert {report["path"] for report in reports} == {
            {"file": "duckdb", "memory": "memory"}.get(scheme, "queues")
        }
        assert {taken["route"] for report in reports for taken in report["routes"]} == {"gpu"}
        assert scanned(connection) == selected(connection)


def test_smaller_blocks(tmp_path):
    with rawduck.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'b.db'}' AS b (BLOCK_SIZE 16384)")
        connection.execute(
            f"CREATE TABLE b.t AS SELECT hash(i) AS h, 'text ' || i AS s FROM range({ROWS}) r(i)"
        )
        connection.execute("CHECKPOINT b")
        assert scanned(connection, "b.t") == selected(connection, "b.t")


def test_batches_have_the_rows_that_were_asked_for(tmp_path):
    with rawduck.connect(tmp_path / "t.db") as connection:
        make_table(connection, "i", 300_000)
        sizes = [len(batch) for batch in gpu.scan(connection, "t", batch_rows=70_001)]
        assert sizes == [*[70_001] * 4, 300_000 - 4 * 70_001]


def test_conditions_prune_row_groups_and_filter_no_rows(tmp_path):
    with rawduck.connect(tmp_path / "t.db") as connection:
        make_table(connection, "i", 5 * 122_880)
        (found,) = scanned(connection, where=[("x", ">=", 300_000), ("x", "<", 300_010)])
        assert found == list(range(2 * 122_880, 3 * 122_880))
        assert scanned(connection, where=[("x", ">", 10**7)]) == []


def test_a_constant_that_the_column_cannot_hold_prunes_nothing_wrong(tmp_path):
    """3.5 would be 4 as an integer, and x > 4 true for fewer rows."""
    with rawduck.connect(tmp_path / "t.db") as connection:
        make_table(connection, "i % 5", 1000)
        assert len(scanned(connection, where=[("x", ">", 3.5)])[0]) == 1000


@pytest.mark.parametrize(
    ("expression", "operator", "constant"),
    [
        ("TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL (8 * g) HOUR", "=", datetime(2020, 1, 1, 17)),
        ("TIMESTAMP '2020-01-01' + INTERVAL (8 * g) HOUR", "<", datetime(2020, 1, 1, 8, tzinfo=UTC)),
        ("TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL (8 * g) HOUR", ">", "2020-01-01 17:00:00"),
        ("9007199254740991 + g", "<=", 9007199254740992.0),
        ("(100000000000000000 + g)::DECIMAL(18, 0)", "=", 1e17),
        ("g::UTINYINT", "<", 300),
        ("g::UTINYINT", ">=", -1),
        ("g", "<", float("inf")),
        ("g", "<=", float("nan")),
        ("g", "<", 10**30),
        ("g::DECIMAL(9, 2)", "<", 16777217),
        ("DATE '2020-01-01' + g::INTEGER", ">=", datetime(2020, 1, 2, tzinfo=UTC)),
        ("g::DOUBLE", ">=", 2),
        ("g", "=", "2"),
        ("(['d', 'c', 'b', 'a'])[g + 1]::ENUM ('d', 'c', 'b', 'a')", "<", "c"),
        ("(['d', 'c', 'b', 'a'])[g + 1]::ENUM ('d', 'c', 'b', 'a')", ">=", "bb"),
    ],
)
def test_no_row_that_sql_finds_is_pruned(con, expression, operator, constant):
    con.execute("SET TimeZone = 'Asia/Tokyo'")
    with con.cursor() as own:
        own.execute("SET TimeZone = 'Asia/Tokyo'; ATTACH ':memory:' AS m; BEGIN")
        own.execute(f"""CREATE TABLE m.t AS
            SELECT {expression} AS x, g FROM (SELECT i // 122880 AS g FROM range(4 * 122880) r(i))""")
        found = own.execute(f"SELECT DISTINCT g FROM m.t WHERE x {operator} ?", [constant]).fetchall()
        own.execute("COMMIT; BEGIN")
        columns = scanned(own, "m.t", ["g"], where=[("x", operator, constant)])
        own.execute("ROLLBACK")
    assert {g for (g,) in found} <= set(columns[0] if columns else [])


def test_a_null_that_a_float_cannot_hold_is_refused(con):
    con.execute("CREATE TABLE t AS SELECT NULL::FLOAT AS x")
    for value in (1e300, 2**24 + 1):
        with pytest.raises(duckdb.Error, match="cannot hold"):
            gpu.scan(con, "t", nulls=value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"table": "missing"}, duckdb.Error, "missing"),
        ({"columns": ["nothing"]}, duckdb.Error, "no column nothing"),
        ({"columns": ["list"]}, duckdb.Error, "list is INTEGER.., which has no place in a batch; name the"),
        ({"columns": []}, ValueError, "names no column"),
        ({"columns": "in"}, ValueError, r"one string.*columns=\['in'\]"),
        ({"columns": ["twice"]}, duckdb.Error, "twice is generated.*gpu.query"),
        ({"columns": None}, duckdb.Error, "twice is generated.*gpu.query"),
        ({"columns": ["flag"], "nulls": -1}, duckdb.Error, "flag is BOOLEAN, which cannot hold the value -1"),
        ({"where": [("x", "~", 1)]}, duckdb.Error, "not by"),
        ({"where": [("x", "<", "word")]}, duckdb.Error, "cannot be compared"),
        ({"where": [("x", "<", None)]}, ValueError, "true for no row"),
        ({"batch_rows": 0}, ValueError, "1 to 2147483647 rows"),
        ({"batch_rows": 2**64 + 150}, ValueError, "1 to 2147483647 rows"),
        ({"decimal": "text"}, ValueError, "arrow, int64, float64"),
        ({"nulls": "zero"}, ValueError, "error"),
        ({"nulls": 0.5}, duckdb.Error, "cannot hold the value 0.5"),
        ({"nulls": 2**53 + 1}, ValueError, "that a double holds"),
        ({"device": "some"}, RawduckError, 'no device "some".*emulated'),
    ],
)
def test_what_cannot_be_scanned_is_refused(con, arguments, error, message):
    con.execute("CREATE TABLE t (x INTEGER, list INTEGER[], flag BOOLEAN, twice INTEGER AS (x * 2))")
    con.execute("INSERT INTO t (x) VALUES (1)")
    with pytest.raises(error, match=message):
        gpu.scan(con, **{"table": "t", "columns": ["x"], **arguments})


def test_numbers_have_a_point_in_every_locale(tmp_path):
    """Those of a report, and those of sizes."""
    (tmp_path / "source").write_text(
        'LC_NUMERIC\ndecimal_point ","\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n'
    )
    command = ["localedef", "-c", "--no-archive", "-i", str(tmp_path / "source"), str(tmp_path / "xx_XX")]
    subprocess.run(command, capture_output=True, check=False)  # it warns of what is not there
    program = """
        import locale
        import rawduck
        from rawduck import gpu
        locale.setlocale(locale.LC_NUMERIC, "xx_XX")
        assert locale.localeconv()["decimal_point"] == ","
        with rawduck.connect() as con:
            con.execute("SET nvme_memory_size = '0.5 GiB'; CREATE TABLE t AS SELECT 1 AS x")
            print(type(next(gpu.scan(con, "t")).report["milliseconds"]))
    """
    environment = {**os.environ, "LOCPATH": str(tmp_path), "LC_ALL": "", "RAWDUCK_GPU": "emulated"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (0, "<class 'float'>\n"), done.stderr


def test_damaged_blocks_are_refused(tmp_path):
    path = tmp_path / "t.db"
    with rawduck.connect(path) as connection:
        make_table(connection, "hash(i)", 1000)
        query = "SELECT block, block_offset FROM gpu_segments('t') WHERE part = 'data'"
        block, offset = connection.execute(query).fetchone()
    with open(path, "r+b") as file:
        file.seek(12288 + block * 262144 + 8 + offset + 100)
        file.write(b"\xa5\x5a")
    with (
        rawduck.connect(path, read_only=True) as connection,
        pytest.raises(RawduckError, match=r"(?i)checksum"),
    ):
        scanned(connection)


@pytest.mark.parametrize("codec", ["uncompressed", "dict_fsst"])
@pytest.mark.parametrize("type_name", ["VARCHAR", "BLOB"])
def test_text_that_is_not_utf8_is_refused(tmp_path, codec, type_name):
    """Damage whose checksum fits. The same bytes are a BLOB as any other."""
    path = tmp_path / "t.db"
    with rawduck.connect(path) as connection:
        connection.execute(f"SET force_compression = '{codec}'")
        connection.execute(f"CREATE TABLE t AS SELECT ('needle ' || i)::{type_name} AS x FROM range(3) r(i)")
        connection.execute("CHECKPOINT")
        query = "SELECT block, block_offset FROM gpu_segments('t') WHERE part = 'data' AND route = 'gpu'"
        block, offset = connection.execute(query).fetchone()
    with open(path, "r+b") as file:
        start = 12288 + block * 262144
        file.seek(start)
        content = bytearray(file.read(262144))
        place = content.index(b"needle", 8 + offset)
        content[place + 2] = 0xFF
        content[:8] = checksum_of(content)
        file.seek(start)
        file.write(content)
    with rawduck.connect(path, read_only=True) as connection:
        if type_name == "VARCHAR":
            with pytest.raises(RawduckError, match=f"block {block} .*not UTF-8"):
                scanned(connection)
        else:
            assert any(b"\xff" in value for value in scanned(connection)[0])
