"""Directories in which a user may make and change files, and that this user may not list (mode 0333)."""

from __future__ import annotations

import os

from nobody import run_as_nobody


def test_a_database_lives_there(box):
    results = run_as_nobody(
        f"ATTACH 'direct://{box}/x.duckdb' AS x",
        "CREATE TABLE x.t AS SELECT range AS i, md5(range::VARCHAR) AS s FROM range(100000)",
        "INSERT INTO x.t VALUES (-1, 'in the log')",
        "CHECKPOINT x",
        "INSERT INTO x.t VALUES (-2, 'in the next log')",
        "DETACH x",
        f"ATTACH 'direct://{box}/x.duckdb' AS x",
        "SELECT count(*), min(i) FROM x.t",
        "DROP TABLE x.t",
        "CHECKPOINT x",
        "DETACH x",
    )
    assert results == [[], [[100000]], [[1]], [], [[1]], [], [], [[100002, -2]], [], [], []]
    assert os.listdir(box) == ["x.duckdb"]


def test_copy_writes_and_replaces_there(box):
    copy = f"COPY (SELECT {{}} AS a) TO 'direct://{box}/x.csv'"
    results = run_as_nobody(copy.format(1), copy.format(2), f"FROM 'direct://{box}/x.csv'")
    assert results == [[[1]], [[1]], [[2]]]
    assert os.listdir(box) == ["x.csv"]


def test_temporary_files_are_there_while_they_are_needed(box):
    results = run_as_nobody(
        f"SET temp_directory = 'direct://{box}/spilled'",
        "SET memory_limit = '40MB'",
        "SET threads = 2",
        "CREATE TEMP TABLE t AS SELECT md5(range::VARCHAR) AS s FROM range(2000000)",
        "SELECT sum(temporary_storage_bytes) > 0 FROM duckdb_memory()",
        "SELECT count(*), count(DISTINCT s[1:6]) > 1000 FROM t",
    )
    assert results == [[], [], [], [[2000000]], [[True]], [[2000000, True]]]


def test_a_volume_and_copies_of_its_files(box):
    results = run_as_nobody(
        f"CALL nvme_format('{box}/v.rawduck', size := '64M')",
        f"ATTACH 'nvme://{box}/v.rawduck/x.duckdb' AS x",
        "CREATE TABLE x.t AS FROM range(1000)",
        "DETACH x",
        f"CALL nvme_copy('nvme://{box}/v.rawduck/x.duckdb', 'direct://{box}/copy.duckdb')",
        f"CALL nvme_copy('nvme://{box}/v.rawduck/x.duckdb', '{box}/copy.duckdb', overwrite := true)",
        f"ATTACH '{box}/copy.duckdb' AS y (READ_ONLY)",
        "SELECT count(*) FROM y.t",
    )
    assert not [result for result in results if isinstance(result, str)], results
    assert results[-1] == [[1000]]
    assert sorted(os.listdir(box)) == ["copy.duckdb", "v.rawduck"]
