"""What libraries take from a batch: Arrow's device arrays and DLPack; memory is shared, and freed once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap

import duckdb
import nanoarrow
import nanoarrow.device
import numpy
import pyarrow
import pytest
import rawduck
from gpu_support import ROWS, TYPES, comparable, numbers_of, selected, values_of
from rawduck import gpu


@pytest.fixture
def batch(con, device):
    return make_batch(con)


@pytest.fixture
def host_batch(con, monkeypatch):
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")
    return make_batch(con)


def make_batch(con):
    con.execute("""CREATE TABLE t AS SELECT i, (i / 4)::DOUBLE AS x, i % 3 = 0 AS b,
        (i / 10)::DECIMAL(9, 2) AS d, 'text ' || i AS s, DATE '2020-01-01' + i::INTEGER AS day,
        CASE WHEN i % 2 = 0 THEN i::SMALLINT END AS n,
        (i / 10)::DECIMAL(4, 1) AS tiny, 1.5::DECIMAL(38, 3) AS wide FROM range(100) r(i)""")
    (only,) = gpu.scan(con, "t")
    return only


def scan_one(con, column, **options):
    (only,) = gpu.scan(con, "t", [column], **options)
    return only[column]


def test_pyarrow_finds_a_batch_in_order_and_the_values_of_select(con, monkeypatch):
    """A reader that is not ours has the structures checked, and every value read."""
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")
    values = [
        f"CASE WHEN hash(i) % {3 + n % 2 * 1000} > 0 THEN {value} END AS c{n}"
        for n, value in enumerate(TYPES.values())
    ]
    con.execute(f"CREATE TABLE t AS SELECT {', '.join(values)} FROM range({ROWS}) r(i)")
    read: list[list] = [[] for _ in values]
    for batch in gpu.scan(con, "t", batch_rows=3000):
        taken = pyarrow.record_batch(batch)
        taken.validate(full=True)
        for column, part in zip(read, taken.columns, strict=True):
            column += part.to_pylist()
    assert [comparable(column) for column in read] == selected(con)


def test_numbers_by_dlpack(batch):
    assert numbers_of(batch["i"]).tolist() == list(range(100))
    assert numbers_of(batch["x"]).tolist() == [i / 4 for i in range(100)]
    assert numbers_of(batch["b"]).tolist() == [i % 3 == 0 for i in range(100)]
    assert numbers_of(batch["day"]).dtype == numpy.int32


def test_an_array_outlives_its_batch(con, host_batch):
    batch = host_batch
    array = numpy.from_dlpack(batch["i"])
    texts = nanoarrow.device.c_device_array(batch["s"]).array
    del batch, host_batch
    gc.collect()
    assert array.sum() == 4950
    assert nanoarrow.Array(texts).to_pylist()[7] == "text 7"


@pytest.mark.parametrize("column", ["s", "d", "wide"])
def test_what_dlpack_cannot_hold_is_refused(batch, column):
    with pytest.raises(BufferError, match=column):
        numpy.from_dlpack(batch[column])


def test_nulls_by_dlpack(con, batch):
    with pytest.raises(BufferError, match="50 NULLs"):
        numpy.from_dlpack(batch["n"])
    filled = scan_one(con, "n", nulls=-1)
    assert numbers_of(filled).tolist() == [i if i % 2 == 0 else -1 for i in range(100)]
    assert values_of(filled) == [i if i % 2 == 0 else None for i in range(100)]


def test_decimals(con, batch):
    assert [str(value) for value in values_of(batch["wide"])[:2]] == ["1.500", "1.500"]
    assert (batch["d"].format, batch["tiny"].format) == ("d:9,2,32", "d:4,1,32")
    for name, points in (("d", 2), ("tiny", 1)):
        whole = numbers_of(scan_one(con, name, decimal="int64"))
        assert whole.tolist() == [i * 10 ** (points - 1) for i in range(100)]
        exact = [value for (value,) in con.execute(f"SELECT {name}::DOUBLE FROM t").fetchall()]
        assert numbers_of(scan_one(con, name, decimal="float64")).tolist() == exact
    with pytest.raises(duckdb.Error, match="64 bits"):
        scan_one(con, "wide", decimal="int64")


def test_decimals_become_the_nearest_double(con, device):
    """As DuckDB's own cast: also where neither digits nor power of ten are exact."""
    for digits, scale in ((18, 17), (18, 3), (38, 37), (38, 30), (38, 20)):
        con.execute(f"CREATE OR REPLACE TABLE t (d DECIMAL({digits}, {scale}))")
        con.execute(f"""INSERT INTO t SELECT ((CASE WHEN i % 2 = 0 THEN '-' ELSE '' END) || '0.' ||
            lpad((hash(i) % 1000000000000000000)::VARCHAR, 18, '7') ||
            lpad((hash(i + 9) % 100000000000000000)::VARCHAR, 17, '3'))::DECIMAL({digits}, {scale})
            FROM range(5000) r(i) UNION ALL SELECT 0""")
        expected = [value for (value,) in con.execute("SELECT d::DOUBLE FROM t").fetchall()]
        assert numbers_of(scan_one(con, "d", decimal="float64")).tolist() == expected


def test_arguments_of_dlpack(host_batch):
    batch = host_batch
    column = batch["i"]
    assert column.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(column.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(column.__dlpack__())
    for refused in ({"stream": 1}, {"dl_device": (2, 0)}, {"copy": True}):
        with pytest.raises(BufferError):
            column.__dlpack__(**refused)


def test_the_structures_of_arrow(host_batch):
    batch = host_batch
    array = nanoarrow.device.c_device_array(batch)
    assert (array.device_type_id, array.device_id) == (1, -1)
    assert [child.name for child in array.schema.children] == batch.column_names
    assert nanoarrow.c_schema(batch).format == "+s"
    assert nanoarrow.c_schema(batch["s"]).format == "u"


def test_names_of_columns(con, monkeypatch):
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")
    con.execute("""CREATE TABLE t AS SELECT 1 AS "quote "" and \\ slash", 2 AS "größe\n" """)
    (batch,) = gpu.scan(con, "t")
    assert batch.column_names == ['quote " and \\ slash', "größe\n"]
    with pytest.raises(KeyError, match=r"no column .*x"):
        batch["x"]


def test_memory_is_given_back_once():
    """Capsules used and unused, batches dropped in every order: in a child whose allocator checks frees, and
    whose memory must not grow."""
    program = """
        import os, resource
        os.environ["RAWDUCK_GPU"] = "emulated"
        import nanoarrow.device, numpy, rawduck
        from rawduck import gpu
        connection = rawduck.connect()
        connection.execute("CREATE TABLE t AS SELECT i, i AS j, 'text' || i AS s FROM range(100000) r(i)")
        def once():
            for batch in gpu.scan(connection, "t", batch_rows=30_000):
                batch["i"].__dlpack__(); batch["i"].__dlpack__(max_version=(1, 0))
                batch.__arrow_c_device_array__(); batch.__arrow_c_schema__()
                kept = numpy.from_dlpack(batch["j"]), nanoarrow.device.c_device_array(batch)
            gpu.scan(connection, "t")  # never read
            next(gpu.scan(connection, "t", batch_rows=10))  # not to the end
            return kept
        for _ in range(3):
            once()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(15):
            once()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 40_000, grown
        print("done")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


def test_explain(tmp_path):
    with rawduck.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t AS SELECT i, [i] AS list FROM range(200_000) r(i)")
        connection.execute("CHECKPOINT")
        decoded, nested = gpu.explain(connection, "t")
        assert (decoded["column_name"], decoded["route"], decoded["codecs"]) == ("i", "gpu", "BitPacking")
        assert (decoded["row_groups"], decoded["rows"]) == (2, 200_000)
        assert decoded["bytes"] > 0
        assert (nested["column_name"], nested["route"], nested["reason"]) == (
            "list",
            "duckdb",
            "type BIGINT[]",
        )


def test_the_report_says_what_was_done(tmp_path, monkeypatch):
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")
    with rawduck.connect(tmp_path / "t.db") as connection:
        connection.execute("CREATE TABLE t AS SELECT hash(i) AS h FROM range(200_000) r(i)")
        connection.execute("CHECKPOINT")
        connection.execute("UPDATE t SET h = 1 WHERE rowid = 5")
        (batch,) = gpu.scan(connection, "t")
        scanned, decoded = batch.report["routes"]
        assert (scanned["row_group"], scanned["route"]) == (0, "duckdb")
        assert (decoded["row_group"], decoded["route"], decoded["reason"]) == (1, "gpu", None)
        assert batch.report["bytes_decoded"] == 8 * decoded["rows"]
        assert batch.report["bytes_read"] % 262144 == 0
        assert batch.report["device"] == "emulated"
        assert batch.report["milliseconds"] > 0
