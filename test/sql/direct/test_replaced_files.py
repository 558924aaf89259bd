"""COPY over files that may not be written to: refused before the query runs, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess

import duckdb
import pytest
import rawduck
from nobody import run_as_nobody
from rawduck.volumes import format_volume

OLD = "a\nold\n"


@pytest.fixture
def folder(box):
    box.chmod(0o777)
    (box / "x.csv").write_text(OLD)
    return box


def copy_to(folder, options=""):
    """Of a query that fails at its end, so that a refusal shows that it did not come there."""
    query = (
        "SELECT CASE WHEN range = 2999999 THEN error('the query was run') ELSE range END FROM range(3000000)"
    )
    return f"COPY ({query}) TO 'direct://{folder}/x.csv' (FORMAT csv{options})"


def unchanged(folder):
    return (folder / "x.csv").read_text() == OLD and os.listdir(folder) == ["x.csv"]


@pytest.mark.parametrize("options", ["", ", USE_TMP_FILE false"])
def test_a_read_only_file_is_not_replaced(folder, options):
    (folder / "x.csv").chmod(0o444)
    _, refused = run_as_nobody("SET threads = 1", copy_to(folder, options))
    assert refused.startswith("PermissionException"), refused
    assert f"{folder}/x.csv" in refused
    assert unchanged(folder)


def test_nor_where_copy_does_not_ask_whether_it_is_there(folder):
    """It learns it when it has written all."""
    (folder / "x.csv").chmod(0o444)
    copy = f"COPY (SELECT 1 AS a) TO 'direct://{folder}/x.csv' (USE_TMP_FILE true)"
    (refused,) = run_as_nobody(copy)
    assert refused.startswith("PermissionException"), refused
    assert unchanged(folder)


def test_nothing_is_replaced_in_a_read_only_directory(folder):
    folder.chmod(0o555)
    _, refused = run_as_nobody("SET threads = 1", copy_to(folder))
    assert refused.startswith("PermissionException"), refused
    assert unchanged(folder)


def test_what_only_has_a_name_like_it_is_no_hindrance(folder):
    """DuckDB writes "tmp_x.csv" to replace "x.csv" by it; here that is the file's own name."""
    (folder / "x.csv").chmod(0o444)
    assert run_as_nobody(f"COPY (SELECT 1 AS a) TO 'direct://{folder}/tmp_x.csv'") == [[[1]]]
    assert (folder / "x.csv").read_text() == OLD


def test_a_file_that_the_file_system_protects_is_not_replaced(folder):
    chattr = shutil.which("chattr", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if not chattr or subprocess.run([chattr, "+i", folder / "x.csv"], check=False).returncode != 0:
        pytest.skip("no file can be made immutable here")
    try:
        with rawduck.connect() as connection:
            connection.execute("SET threads = 1")
            with pytest.raises(duckdb.PermissionException, match="this user may not write"):
                connection.execute(copy_to(folder))
        assert unchanged(folder)
    finally:
        subprocess.run([chattr, "-i", folder / "x.csv"], check=True)


def test_nvme_copy_does_not_replace_it_either(folder):
    (folder / "x.csv").chmod(0o444)
    (folder / "new.csv").write_text("new")
    call = f"CALL nvme_copy('direct://{folder}/new.csv', 'direct://{folder}/x.csv', overwrite := true)"
    (refused,) = run_as_nobody(call)
    assert refused.startswith("PermissionException"), refused
    assert (folder / "x.csv").read_text() == OLD
    assert sorted(os.listdir(folder)) == ["new.csv", "x.csv"]


def test_nvme_copy_names_the_destination_that_it_cannot_make(folder):
    (folder / "new.csv").write_text("new")
    folder.chmod(0o555)
    call = f"CALL nvme_copy('direct://{folder}/new.csv', 'direct://{folder}/x.csv', overwrite := true)"
    (refused,) = run_as_nobody(call)
    assert refused.startswith("PermissionException"), refused
    assert "x.csv: " in refused
    assert ".nvme_copy-" not in refused, refused
    assert (folder / "x.csv").read_text() == OLD


@pytest.mark.parametrize("options", ["", "USE_TMP_FILE false,", "USE_TMP_FILE true,"])
@pytest.mark.parametrize("members", [1, 2])
def test_a_volume_is_not_replaced(con, tmp_path, options, members):
    """Who leaves out the name of a file on it, and takes direct: for nvme:, would lose all that is there."""
    paths = [str(tmp_path / f"{number}.rawduck") for number in range(members)]
    format_volume(con, paths[0], size="32M", stripe_with=paths[1:])
    with rawduck.connect(f"nvme://{paths[0]}/x.duckdb") as other:
        other.execute("CREATE TABLE t AS SELECT 42 AS v")
    for path in paths:
        with pytest.raises(duckdb.Error, match="it is a rawduck volume"):
            con.execute(f"COPY (SELECT 1 AS a) TO 'direct://{path}' ({options} FORMAT csv)")
    with rawduck.connect(f"nvme://{paths[0]}/x.duckdb") as other:
        assert other.execute("SELECT v FROM t").fetchone() == (42,)
    assert sorted(os.listdir(tmp_path)) == sorted(path.rsplit("/", 1)[1] for path in paths)


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        ("k=1/data_0.csv", "COPY (SELECT 1 AS a, 1 AS k) TO '{0}' (FORMAT csv, PARTITION_BY k, OVERWRITE)"),
        ("data_0.csv", "COPY (SELECT 1 AS a) TO '{0}' (FORMAT csv, PER_THREAD_OUTPUT, OVERWRITE)"),
        ("x.duckdb.wal", "ATTACH '{0}/x.duckdb'"),
    ],
)
def test_a_volume_is_not_removed_to_make_room(con, tmp_path, name, statement):
    """What COPY overwrites is a directory, and all that lies there; a new database has no log."""
    volume = tmp_path / name
    volume.parent.mkdir(exist_ok=True)
    format_volume(con, str(volume), size="32M")
    with pytest.raises(duckdb.Error, match="it is a rawduck volume"):
        con.execute(statement.format(f"direct://{tmp_path}"))
    rawduck.connect(f"nvme://{volume}/x.duckdb").close()
