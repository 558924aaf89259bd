"""Defects of DuckDB 2.0.0 on ordinary files, without rawduck: four of its recovery, one that needs no crash.

The workloads of this folder stay clear of them. A test that fails here says that DuckDB was cured of one.
Then what stays clear of it can go: `UPDATED` and "keeps rows" in lanes.py, the second purpose of
`check_indexes` in verify.py, `open_once` in workload.py.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from disk import Disk, Geometry
from lanes import UPDATED, table_lane
from verify import Broken, check_index
from workload import Life, connect, draw_plan


def leave(folder: Path, *statements: str) -> None:
    """A database that was closed properly after these statements."""
    with duckdb.connect(folder / "x.duckdb") as connection:
        for statement in statements:
            connection.execute(statement)


def kill_after(folder: Path, *statements: str) -> Path:
    """What a killed process leaves that had carried out and committed these statements."""
    copy = folder / "killed"
    with duckdb.connect(folder / "x.duckdb") as connection:
        for statement in statements:
            connection.execute(statement)
        copy.mkdir()
        for file in folder.glob("x.duckdb*"):
            shutil.copy(file, copy)
    return copy / "x.duckdb"


def killed_after_growth(folder: Path, before: int = 100, after: int = 110) -> Path:
    """A killed database whose log has more rows of an indexed table."""
    leave(
        folder,
        "CREATE TABLE t (k BIGINT)",
        "CREATE TABLE other (k BIGINT)",
        f"INSERT INTO t FROM range({before})",
        "CREATE INDEX i ON t (k)",
    )
    return kill_after(folder, f"INSERT INTO t FROM range({before}, {after})")


def checkpoint_first(file: Path) -> None:
    """What makes an index forget what recovery has put aside for it."""
    with duckdb.connect(file, config={"wal_autocheckpoint": "1KB"}) as recovered:
        recovered.execute("INSERT INTO other FROM range(10000)")


def test_a_checkpoint_after_recovery_forgets_rows_of_an_index(tmp_path):
    file = killed_after_growth(tmp_path)
    checkpoint_first(file)
    with duckdb.connect(file) as again:
        assert again.execute("SELECT count(*), max(k) FROM t").fetchone() == (110, 109)
        assert again.execute("SELECT count(*) FROM t WHERE k = 105").fetchone() == (0,)
        again.execute("DROP INDEX i")
        again.execute("CREATE INDEX i ON t (k)")
        assert again.execute("SELECT count(*) FROM t WHERE k = 105").fetchone() == (1,)


@pytest.mark.parametrize(("before", "after"), [(0, 1), (0, 2), (21, 31), (39, 40), (100, 110), (3000, 3001)])
def test_the_crash_tests_notice_an_index_that_lacks_rows(tmp_path, before, after):
    file = killed_after_growth(tmp_path, before, after)
    checkpoint_first(file)
    with duckdb.connect(file) as again, pytest.raises(Broken):
        check_index(again, "t")


@pytest.mark.parametrize("first", ["SELECT count(*) FROM t WHERE k = 105", "CHECKPOINT"])
def test_using_the_index_or_a_checkpoint_before_that_keeps_them(tmp_path, first):
    """The one is what verify.py does, the other what docs/DURABILITY.md recommends."""
    file = killed_after_growth(tmp_path)
    with duckdb.connect(file, config={"wal_autocheckpoint": "1KB"}) as recovered:
        recovered.execute(first)
        recovered.execute("INSERT INTO other FROM range(10000)")
    with duckdb.connect(file) as again:
        assert again.execute("SELECT count(*) FROM t WHERE k = 105").fetchone() == (1,)


def null_after_recovery(folder: Path, closed_after: list[str], killed_after: list[str]) -> str | None:
    """What replaced a NULL in a table that has grown since the last checkpoint. The statements are for
    before that checkpoint and for after it."""
    leave(
        folder,
        "CREATE TABLE t (k BIGINT, v VARCHAR, w DOUBLE)",
        "INSERT INTO t SELECT r, CASE WHEN r >= 46 THEN 'x' END, r FROM range(62) g(r)",
        *closed_after,
    )
    insert, update = "INSERT INTO t (k, v) VALUES (62, 'x')", "UPDATE t SET v = 'y' WHERE k = 40"
    with duckdb.connect(kill_after(folder, *killed_after, insert, update)) as recovered:
        return recovered.execute("SELECT v FROM t WHERE k = 40").fetchone()[0]


ALTERATIONS = ["ALTER TABLE t ADD COLUMN c INTEGER", "ALTER TABLE t DROP COLUMN w"]


def test_recovery_loses_an_update_of_null_in_a_table_with_an_index(tmp_path):
    assert null_after_recovery(tmp_path, ["CREATE INDEX i ON t (k)"], []) is None


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_recovery_loses_an_update_of_null_in_a_table_that_was_altered(tmp_path, alter):
    assert null_after_recovery(tmp_path, [], [alter]) is None


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_a_checkpoint_after_the_alteration_keeps_that_update(tmp_path, alter):
    assert null_after_recovery(tmp_path, [alter], []) == "y"


def committed_words() -> list[list[list[str]]]:
    """The words of each statement of each transaction that a long lane commits."""
    lane = table_lane(random.Random(1), "a", "l0", 20000, 4000)
    return [[text.split() for text in step.statements] for step in lane.steps if step.kind == "transaction"]


def test_the_workloads_stay_clear_of_updates_that_are_forgotten():
    endangered, updates = set(), []
    for words in (words for transaction in committed_words() for words in transaction):
        if words[0] == "ALTER":
            endangered.add(words[2])
        elif words[:2] == ["CREATE", "INDEX"]:
            endangered.add(words[4])
        elif words[0] == "UPDATE" and words[1] in endangered and "'changed" in words:
            updates.append(" ".join(words))
    assert len(updates) > 100
    assert [update for update in updates if not update.endswith(UPDATED)] == []


def killed_in_checkpoint(folder: Path, pause_ms: int, before: tuple[str, ...], change: str) -> Path:
    """What a killed process leaves in the middle of a checkpoint during which another commits a change, if
    the machine is quick enough for that pause. `before` follows the first 25 rows."""
    folder.mkdir()
    with duckdb.connect(folder / "x.duckdb") as connection:
        connection.execute("CREATE TABLE other AS FROM range(1000) g(r)")
        connection.execute("CREATE TABLE t (k BIGINT)")
        connection.execute("INSERT INTO t FROM range(25)")
        for statement in before:
            connection.execute(statement)
        connection.execute(f"SET debug_checkpoint_scan_sleep_ms = {2 * pause_ms}")
        during = connection.cursor()
        during.execute("BEGIN")
        during.execute(change)
        connection.execute("SET wal_autocheckpoint = '1KB'")
        insert = "INSERT INTO other FROM range(1000)"
        checkpoint = threading.Thread(target=connection.cursor().execute, args=(insert,))
        checkpoint.start()
        time.sleep(pause_ms / 1000)
        during.execute("COMMIT")
        (folder / "killed").mkdir()
        for file in folder.glob("x.duckdb*"):
            shutil.copy(file, folder / "killed")
        checkpoint.join()
    return folder / "killed" / "x.duckdb"


GROWTH = "INSERT INTO t FROM range(25, 39)"


def overlapped_checkpoint(folder: Path, *before: str, change: str = GROWTH) -> tuple[Path, Path]:
    """The killed database, and the log of what was committed during the checkpoint."""
    pauses = (200, 1000, 5000)
    files = (killed_in_checkpoint(folder / str(pause), pause, before, change) for pause in pauses)
    pairs = ((file, file.with_name("x.duckdb.wal.checkpoint")) for file in files)
    return next((file, log) for file, log in pairs if log.exists())


def test_recovery_of_an_interrupted_checkpoint_breaks_an_index_once(tmp_path):
    before = ("CREATE INDEX i ON t (k)", "CHECKPOINT", "DELETE FROM t WHERE k >= 20")
    file, _ = overlapped_checkpoint(tmp_path, *before)
    with duckdb.connect(file) as first:
        assert first.execute("SELECT count(*) FROM t").fetchone() == (34,)
        with pytest.raises(duckdb.Error, match=r"Failed to delete all rows|shared_ptr"):
            first.execute("SELECT * FROM t WHERE k = 30")
    with duckdb.connect(file) as second:
        assert second.execute("SELECT count(*) FROM t WHERE k = 30").fetchone() == (1,)
        assert second.execute("SELECT count(*) FROM t").fetchone() == (34,)


def recovery_cut_short(folder: Path, change: str = GROWTH) -> tuple[Path, Path]:
    """A database whose start was killed after merging the two logs, before removing the second; that one."""
    file, log = overlapped_checkpoint(folder, change=change)
    abort = {"debug_checkpoint_abort": "before_deleting_checkpoint_wal"}
    with pytest.raises(duckdb.FatalException, match="before deleting checkpoint file"):
        duckdb.connect(file, config=abort)
    assert log.exists()
    return file, log


ROWS = "SELECT count(*), count(DISTINCT k) FROM t"


def next_checkpoint_cut_short(folder: Path, change: str, removed: bool) -> Path:
    """A checkpoint marks the log, then removes a second one: a process that is killed in between leaves the
    mark and what an earlier checkpoint left, if nobody removed it before."""
    file, log = recovery_cut_short(folder, change)
    with duckdb.connect(file) as recovered:
        left = log.read_bytes()
        if removed:
            log.unlink()
        recovered.execute("SET debug_checkpoint_abort = 'before_header'")
        with pytest.raises(duckdb.FatalException, match="before header write"):
            recovered.execute("CHECKPOINT")
    assert not log.exists()
    if not removed:
        log.write_bytes(left)
    return file


def test_a_log_that_recovery_left_doubles_rows_after_the_next_interrupted_checkpoint(tmp_path):
    with duckdb.connect(next_checkpoint_cut_short(tmp_path, GROWTH, removed=False)) as again:
        assert again.execute(ROWS).fetchone() == (39 + 14, 39)


def test_a_log_that_recovery_left_makes_a_database_unreadable_after_that_if_it_deletes(tmp_path):
    file = next_checkpoint_cut_short(tmp_path, "DELETE FROM t WHERE k < 14", removed=False)
    with pytest.raises(duckdb.Error, match="Conflict on tuple deletion"):
        duckdb.connect(file)


@pytest.mark.parametrize(("change", "rows"), [(GROWTH, 39), ("DELETE FROM t WHERE k < 14", 11)])
def test_removing_a_log_that_recovery_left_keeps_both_right(tmp_path, change, rows):
    """What docs/DURABILITY.md recommends where a file system has left one."""
    with duckdb.connect(next_checkpoint_cut_short(tmp_path, change, removed=True)) as again:
        assert again.execute(ROWS).fetchone() == (rows, rows)


def test_on_a_volume_recovery_leaves_no_log_that_it_has_merged(tmp_path):
    """Wherever the power goes meanwhile, the next start finds both logs, or one and nothing of the other."""
    file, log = overlapped_checkpoint(tmp_path)
    plan = replace(draw_plan("replay", 1, threaded=False), attach_options={"x": ""})
    with connect(plan) as connection:
        disk = Disk.make(connection, "left", Geometry())
        for part in file.parent.iterdir():
            content = f"SELECT content FROM read_blob('{part}')"
            connection.execute(f"COPY ({content}) TO '{disk.path(part.name)}' (FORMAT blob)")
        first = disk.events(connection)
        Life(connection, disk, plan, {}).open_once("x")
        found_both = set()
        for at in range(first, disk.events(connection) + 1):
            survivor, _ = disk.cut(connection, at, 0, "survivor")
            found_both.add(log.name in survivor.files(connection))
            connection.execute(f"ATTACH '{survivor.path(file.name)}' AS x")
            assert log.name not in survivor.files(connection), f"cut after event {at}"
            assert connection.execute(f"USE x; {ROWS}").fetchone() == (39, 39)
            connection.execute("USE memory; DETACH x")
        assert found_both == {True, False}


@pytest.mark.parametrize(
    ("before", "delete"),
    [
        (["CREATE INDEX i ON t (k)"], ["DELETE FROM t WHERE k = 59"]),
        ([], ["BEGIN", "DELETE FROM t WHERE k = 59", "CREATE TABLE another (k BIGINT)", "COMMIT"]),
    ],
)
def test_an_index_made_between_deletes_that_another_transaction_outlives_ends_the_instance(
    tmp_path, before, delete
):
    """The other's end removes the first row from what the new index keeps for running transactions, which the
    first delete could not put there and the second has made."""
    leave(tmp_path, "CREATE TABLE t AS FROM range(100) g(k)", "CREATE TABLE other (k BIGINT)", *before)
    with duckdb.connect(tmp_path / "x.duckdb") as connection, connection.cursor() as during:
        during.execute("BEGIN")
        during.execute("INSERT INTO other VALUES (1)")
        for statement in (*delete, "CREATE INDEX j ON t (k)", "DELETE FROM t WHERE k = 28"):
            connection.execute(statement)
        with pytest.raises(duckdb.FatalException, match="Failed to delete all rows from index"):
            during.execute("COMMIT")
    with duckdb.connect(tmp_path / "x.duckdb") as again:
        assert again.execute("SELECT count(*) FROM t").fetchone() == (98,)
        assert again.execute("SELECT count(*) FROM other").fetchone() == (1,)
        check_index(again, "t")


def test_the_workloads_stay_clear_of_such_an_index():
    deleted, keeping, broken = {}, set(), []
    for number, transaction in enumerate(committed_words()):
        for words in transaction:
            if words[0] == "DELETE":
                broken += [words] if words[2] in keeping else []
                deleted[words[2]] = number
            elif words[:2] == ["CREATE", "INDEX"] and words[4] in deleted:
                broken += [words] if deleted[words[4]] == number else []
                keeping.add(words[4])
    assert len(keeping) > 100
    assert broken == []
