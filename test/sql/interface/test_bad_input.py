"""Whatever is wrong gets a clear error that says what to do, and the process lives."""

from __future__ import annotations

import os
import subprocess
import sys

import duckdb
import pytest
import rawduck
from support import Image, attach, file_names, one, run_cli


def attach_error(con, path: str) -> str:
    with pytest.raises(duckdb.Error) as caught:
        con.execute(f"ATTACH '{path}' AS bad")
    assert one(con, "SELECT 42") == 42
    assert "bad" not in [
        row[0] for row in con.execute("SELECT database_name FROM duckdb_databases()").fetchall()
    ]
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("../escape.duckdb", r'".."'),
        ("a/../b.duckdb", r'".."'),
        ("a/..", r'".."'),
        ("", "no file"),
        ("/", "no file"),
        ("x" * 256, "255"),
        ("d/" * 130 + "x.duckdb", "255"),
    ],
    ids=["up", "up-inside", "up-last", "empty", "slash", "long", "long-path"],
)
def test_names(target, con, file, said):
    assert said in attach_error(con, target.path(file))
    assert file_names(con, target) == []


@pytest.mark.parametrize(
    "file", ["x" * 251, "a/b/c/d.duckdb", "with space.duckdb", "ünïcödé.duckdb", "no suffix"]
)
def test_unusual_names_that_are_fine(target, file):
    with rawduck.connect() as con:
        con.execute(f"ATTACH '{target.path(file)}' AS x")
        con.execute("CREATE TABLE x.t AS SELECT 42 AS v; DETACH x")
        assert file_names(con, target) == [file]
        con.execute(f"ATTACH '{target.path(file)}' AS x")
        assert one(con, "SELECT v FROM x.t") == 42


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nvme://", "absolute path"),
        ("nvme:///", "is a directory"),
        ("nvme://relative/x.duckdb", "absolute path"),
        ("nvme:///no/such/disk/x.duckdb", "rawduck format"),
        ("nvme:///tmp", "is a directory"),
        ("nvme://memory:", "name"),
        ("nvme:///dev/null/x.duckdb", "/dev/null"),
    ],
)
def test_targets(con, path, said):
    message = attach_error(con, path)
    assert said in message


def test_a_file_in_a_folder_that_is_missing(con, tmp_path):
    with pytest.raises(duckdb.Error, match="make its folder first"):
        con.execute("CALL nvme_format(?, size := '64M')", [str(tmp_path / "none/disk.rawduck")])


def test_target_that_is_no_volume(con, tmp_path):
    plain = tmp_path / "plain.bin"
    plain.write_bytes(b"text" * 10_000_000)
    message = attach_error(con, f"nvme://{plain}/x.duckdb")
    assert "not a rawduck volume" in message
    assert "rawduck format" in message
    assert plain.read_bytes()[:8] == b"texttext"


def test_target_that_is_an_empty_file(con, tmp_path):
    empty = tmp_path / "empty.bin"
    empty.touch()
    assert "size" in attach_error(con, f"nvme://{empty}/x.duckdb")


def test_target_that_is_a_duckdb_file(con, tmp_path):
    duckdb.connect(str(tmp_path / "stock.duckdb")).close()
    assert "not a rawduck volume" in attach_error(con, f"nvme://{tmp_path}/stock.duckdb/x.duckdb")


@pytest.fixture
def open_folder(tmp_path):
    """Lets other users look into the folder of this test, which pytest makes private."""
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)  # takes nothing away: the last one may be everybody's


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_no_permission(file_target, open_folder):
    os.chmod(file_target.name, 0o600)
    message = _as_nobody(file_target, "ATTACH '{}' AS x (READ_ONLY)")
    assert "ermission" in message
    assert file_target.name in message
    assert "root" in message or "owner" in message


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_permission_to_read_only(file_target, open_folder):
    with rawduck.connect(file_target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT 42 AS v")
    os.chmod(file_target.name, 0o644)
    assert "ermission" in _as_nobody(file_target, "ATTACH '{}' AS x")
    assert _as_nobody(file_target, "ATTACH '{}' AS x (READ_ONLY)") == "attached"


def _as_nobody(target, statement: str) -> str:
    """Runs a statement as a user without rights; the extension is loaded before the rights are given up."""
    code = (
        "import os, sys, duckdb, rawduck\n"
        "con = rawduck.connect()\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try:\n"
        "    con.execute(sys.argv[1]); print('attached')\n"
        "except duckdb.Error as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", code, statement.format(target.path("x.duckdb"))]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stdout.strip()


@pytest.fixture
def filled(file_target):
    with rawduck.connect(file_target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT range AS v FROM range(1000)")
    return file_target


@pytest.mark.parametrize("number", [0, 1])
def test_one_damaged_superblock(filled, con, number):
    Image(filled).damage_superblock(number)
    attach(con, filled, "x.duckdb")
    assert one(con, "SELECT count(*) FROM x.t") == 1000
    assert f"superblock {number}" in one(con, "SELECT warning FROM nvme_info(?)", filled.name)
    con.execute("INSERT INTO x.t VALUES (1); DETACH x")
    attach(con, filled, "x.duckdb")
    assert one(con, "SELECT count(*) FROM x.t") == 1001
    assert not one(con, "SELECT warning FROM nvme_info(?)", filled.name), "the first write did not repair it"


def test_both_superblocks_damaged(filled, con):
    image = Image(filled)
    image.damage_superblock(0)
    image.damage_superblock(1)
    before = image.read(0, 4096)
    message = attach_error(con, filled.path("x.duckdb"))
    assert "both superblocks are damaged" in message
    assert "backup" in message
    assert image.read(0, 4096) == before


def test_newer_format(filled, con):
    image = Image(filled)
    for number in (0, 1):
        image.set_version(number, 99)
    message = attach_error(con, filled.path("x.duckdb"))
    assert "99" in message
    assert "newer" in message
    with pytest.raises(duckdb.Error, match="newer"):
        attach(con, filled, "x.duckdb", "(READ_ONLY)")


def test_older_format(filled, con):
    """Whatever looks at it says how to copy its files; formatting asks, as for any volume."""
    image = Image(filled)
    for number in (0, 1):
        image.set_version(number, 1)
    before = image.read(0, 4096)
    for statement in (
        f"ATTACH '{filled.path('x.duckdb')}' AS x",
        f"ATTACH '{filled.path('x.duckdb')}' AS x (READ_ONLY)",
        f"FROM nvme_info('{filled.name}')",
        f"FROM nvme_files('{filled.name}')",
        f"FROM nvme_check('{filled.name}', repair := true)",
    ):
        with pytest.raises(duckdb.Error, match=r"format version 1.*`rawduck cp`"):
            con.execute(statement)
    (finding,) = con.execute("FROM nvme_check(?)", [filled.name]).fetchall()
    assert finding[:2] == ("error", "volume")
    assert "format version 1" in finding[2]
    info = run_cli("info", filled.name)
    assert (info.returncode, "`rawduck cp`" in info.stderr) == (2, True), info.stderr
    with pytest.raises(duckdb.Error, match="rawduck volume"):
        con.execute("CALL nvme_format(?)", [filled.name])
    assert image.read(0, 4096) == before
    con.execute("CALL nvme_format(?, force := true)", [filled.name])
    attach(con, filled, "x.duckdb")


def test_memory_mapping_is_refused(filled, con):
    """There is no file system whose pages could be mapped."""
    with pytest.raises(duckdb.Error, match=r"(?i)map"):
        attach(con, filled, "x.duckdb", "(IO_MODE 'MMAP')")
    attach(con, filled, "x.duckdb")
    assert one(con, "SELECT count(*) FROM x.t") == 1000


def test_missing_volume_in_functions(con):
    for function in ("nvme_info", "nvme_files", "nvme_check"):
        with pytest.raises(duckdb.Error, match="/no/such/disk"):
            con.execute(f"SELECT * FROM {function}('/no/such/disk')").fetchall()
    assert one(con, "SELECT 42") == 42


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("nvme_engine", "'warp'", "io_uring"),
        ("nvme_queues", "'mode=mob'", "nvme_queues: .mode=mob.*sync, single, pool, thread"),
        ("nvme_queues", "'depth=0'", "nvme_queues: .depth=0.*from 1 to 4096"),
        ("nvme_queues", "'mode=pool,depth=100000'", "depth=100000.*from 1 to 4096"),
        ("nvme_queues", "'max_transfer=1 banana'", "max_transfer=1 banana.*not a size"),
        ("nvme_queues", "'max_transfer=65 MiB'", "multiple of 4 KiB up to 64 MiB"),
        ("nvme_queues", "'max_transfer=1 GiB'", "multiple of 4 KiB up to 64 MiB"),
        ("nvme_queues", "'polling=true'", "polling=true.*neither on nor off"),
        ("nvme_queues", "'length=3'", "length=3.*mode, depth, max_transfer, polling"),
        ("nvme_queues", "NULL", "is not a pair"),
        ("nvme_placement", "'database'", "is not a pair"),
        ("nvme_deallocate", "'perhaps'", "neither auto, on nor off"),
        ("nvme_memory_size", "'1 KiB'", "16 MiB"),
        ("nvme_spill_buffer", "'65 GiB'", "64 GiB"),
        ("nvme_reread_buffer", "'65 GiB'", "nvme_reread_buffer.*64 GiB"),
        ("nvme_reread_buffer", "'much'", "much"),
    ],
)
def test_settings(con, setting, value, said):
    before = one(con, f"SELECT current_setting('{setting}')::VARCHAR")
    with pytest.raises(duckdb.Error, match=said):
        con.execute(f"SET {setting} = {value}")
    assert one(con, f"SELECT current_setting('{setting}')::VARCHAR") == before
