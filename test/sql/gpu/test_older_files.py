"""Files that older DuckDBs have written: gpu.scan gives what SELECT gives, whatever codecs are inside.

The older DuckDBs are installed into build/older, once; a machine without a network skips what is not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import rawduck
from gpu_support import scanned, selected

ROOT = Path(__file__).resolve().parents[3]
OLD = {"Uncompressed", "Constant", "RLE", "BitPacking", "Dictionary", "FSST"}
FLOATS = {"ALP", "ALPRD"}
NEW = (OLD - {"Dictionary", "FSST"}) | FLOATS | {"ZSTD", "Roaring", "DICT_FSST", "Empty Validity"}
#: Each version and the storage version that it is told to write, and the codecs that it must have used.
FILES = {
    ("0.9.2", ""): OLD | {"Chimp", "Patas"},
    ("1.2.2", ""): OLD | FLOATS,
    ("1.2.2", "latest"): OLD | FLOATS | {"Roaring"},
    ("1.3.2", "latest"): NEW,
    ("1.4.5", ""): OLD | FLOATS,
    ("1.4.5", "latest"): NEW,
    ("1.5.6", ""): OLD | FLOATS,
    ("1.5.6", "latest"): NEW,
}
SCANNED = {"Dictionary", "FSST", "Chimp", "Patas", "ZSTD"}


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setenv("RAWDUCK_GPU", "emulated")


def installed(version: str) -> Path:
    """The folder of an older DuckDB. It has its name when it is whole: others may install it meanwhile."""
    folder = ROOT / "build" / "older" / f"duckdb-{version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = folder.with_suffix(f".{os.getpid()}")
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += ["--only-binary=:all:", "--retries=1", "--timeout=10", f"--target={unfinished}"]
        done = subprocess.run([*command, f"duckdb=={version}"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"DuckDB {version} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        if not folder.exists():
            unfinished.rename(folder)
    return folder


def write_file(path: Path, version: str, storage_version: str) -> None:
    script = Path(__file__).with_name("write_older_file.py")
    environment = {**os.environ, "PYTHONPATH": str(installed(version))}
    command = [sys.executable, str(script), str(path), storage_version]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr


#: Those of 1.3 have the most codecs; one of them is read in every run.
ALWAYS = ("1.3.2", "latest")


@pytest.mark.parametrize(
    ("version", "storage_version"),
    [pytest.param(*file, marks=() if file == ALWAYS else pytest.mark.long) for file in FILES],
)
def test_files_of_older_versions(tmp_path, version, storage_version):
    path = tmp_path / "older.db"
    write_file(path, version, storage_version)
    query = """SELECT list(DISTINCT codec), any_value(route), any_value(reason) FROM gpu_segments(?)
        GROUP BY row_group, column_name"""
    written: set[str] = set()
    with rawduck.connect(path, read_only=True) as connection:
        for (table,) in connection.execute("FROM (SHOW TABLES)").fetchall():
            assert scanned(connection, table) == selected(connection, table), table
            for codecs, route, reason in connection.execute(query, [table]).fetchall():
                written.update(codecs)
                assert route == ("duckdb" if SCANNED & set(codecs) else "gpu"), (table, codecs, reason)
    assert written == FILES[version, storage_version]


def test_an_older_file_that_is_written_to(tmp_path):
    """Row groups of both versions in one table: deletes, updates and new rows in an old file."""
    path = tmp_path / "older.db"
    write_file(path, "1.2.2", "")
    with rawduck.connect(path) as connection:
        connection.execute("DELETE FROM auto_few WHERE number % 7 = 0")
        connection.execute("UPDATE fsst_few SET word = 'changed' WHERE rowid % 10 = 0")
        connection.execute("INSERT INTO fsst_few FROM auto_none")
        for checkpoint in (False, True):
            if checkpoint:
                connection.execute("CHECKPOINT")
            for table in ("auto_few", "fsst_few"):
                assert scanned(connection, table) == selected(connection, table)
