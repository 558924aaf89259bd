"""Only what DuckDB opens as temporary is temporary: anybody may choose the name."""

from __future__ import annotations

import os

import duckdb
import pytest
import rawduck
from support import file_names, kill_when_ready, make_target, one

OWN = f"duckdb_temp_{os.getpid()}_0_"
NAMES = {
    "chosen": "duckdb_temp_sales",
    "of-another-process": "duckdb_temp_1_0_storage_DEFAULT-0.tmp",
    "own-storage": OWN + "storage_DEFAULT-9.tmp",
    "own-block": OWN + "block-9.block",
}


@pytest.fixture(params=["nvme", "direct"])
def folder(request, tmp_path):
    """Where files are made, and what makes what is there be read anew from the target."""
    if request.param == "direct":
        yield f"direct://{tmp_path}/"
    else:
        with make_target("file-4096", tmp_path) as target:
            yield target.path("")


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_database_of_such_a_name_is_kept(folder, name):
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{folder}{name}' AS db")
        con.execute("CREATE TABLE db.t AS SELECT range AS v FROM range(10000)")
        con.execute("CHECKPOINT db")
        con.execute("INSERT INTO db.t VALUES (-1)")
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{folder}{name}' AS db")
        assert con.execute("SELECT count(*), min(v) FROM db.t").fetchone() == (10001, -1)


@pytest.mark.parametrize("name", [*NAMES.values(), OWN + "owner"], ids=[*NAMES, "own-owner"])
@pytest.mark.parametrize(
    ("form", "query", "read"),
    [
        ("FORMAT csv", "SELECT 42 AS v", "SELECT v FROM read_csv('{}')"),
        ("FORMAT parquet", "SELECT 42 AS v", "SELECT v FROM read_parquet('{}')"),
        ("FORMAT csv, USE_TMP_FILE false", "SELECT 42 AS v", "SELECT v FROM read_csv('{}')"),
        ("FORMAT blob", "SELECT '42'::BLOB", "SELECT content::INT FROM read_text('{}')"),
    ],
)
def test_what_copy_wrote_to_such_a_name_is_kept(folder, name, form, query, read):
    with rawduck.connect() as con:
        if form == "FORMAT blob" and name.endswith("_owner") and folder.startswith("nvme"):
            with pytest.raises(duckdb.Error, match="write to another name"):
                con.execute(f"COPY ({query}) TO '{folder}{name}' ({form})")
            return
        con.execute(f"COPY ({query}) TO '{folder}{name}' ({form})")
    with rawduck.connect() as con:
        assert one(con, read.format(folder + name)) == 42


def test_what_export_wrote_to_a_directory_of_such_a_name_is_kept(folder):
    with rawduck.connect() as con:
        con.execute("CREATE TABLE duckdb_temp_t AS SELECT range AS v FROM range(100)")
        con.execute(f"EXPORT DATABASE '{folder}duckdb_temp_export' (FORMAT parquet)")
    with rawduck.connect() as con:
        con.execute(f"IMPORT DATABASE '{folder}duckdb_temp_export'")
        assert one(con, "SELECT sum(v) FROM duckdb_temp_t") == 4950


def test_a_killed_writer_of_such_a_database_loses_nothing(tmp_path):
    code = """
    con = rawduck.connect()
    con.execute(f"ATTACH 'nvme://{sys.argv[1]}/duckdb_temp_x' AS db")
    con.execute("CREATE TABLE db.t AS SELECT 7 AS v")
    print("ready", flush=True)
    time.sleep(60)
    """
    with make_target("file-4096", tmp_path) as target, rawduck.connect() as con:
        kill_when_ready(code, target.name)
        assert sorted(file_names(con, target)) == ["duckdb_temp_x", "duckdb_temp_x.wal"]
        con.execute(f"ATTACH '{target.path('duckdb_temp_x')}' AS db")
        assert one(con, "SELECT v FROM db.t") == 7
