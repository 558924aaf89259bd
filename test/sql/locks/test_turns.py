"""Processes that attach one database in turns: none loses what another one has committed."""

from __future__ import annotations

import duckdb
import pytest
from support import CHILD_SECONDS, start_python

LOCKS_MOST = 30
# DuckDB looks at the headers of what it attaches before it locks it, and does not look again.
ONE_TURN = """
try:
    connection.execute(f"ATTACH '{sys.argv[1]}' AS x {sys.argv[3]}")
    connection.execute("CREATE TABLE IF NOT EXISTS x.t (n BIGINT)")
    connection.execute(f"INSERT INTO x.t VALUES ({sys.argv[2]})")
    print("committed")
except duckdb.IOException as error:
    print(error)
"""


def commit(con, path: str, number: int, checkpoints: bool) -> bool:
    """False when the other process has it. What is not checkpointed is in the log, as after a kill."""
    con.execute(f"SET checkpoint_on_detach = '{'ENABLED' if checkpoints else 'DISABLED'}'")
    try:
        con.execute(f"ATTACH '{path}' AS x; CREATE TABLE IF NOT EXISTS x.t (n BIGINT)")
        con.execute(f"INSERT INTO x.t VALUES ({number})")
        con.execute("DETACH x")
    except duckdb.IOException:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "is_new", "options", "checkpoints"),
    [
        ("volume", False, "", True),
        ("volume", True, "", True),
        ("volume", True, "", False),
        ("volume", True, "(TYPE duckdb)", True),
        ("volume", False, "(TYPE duckdb)", False),
        ("direct", False, "", True),
        ("direct", True, "", True),
        ("direct", True, "", False),
    ],
)
def test_another_process_comes_between(
    new_target, con, tmp_path, monkeypatch, pause_at_locks, kind, is_new, options, checkpoints
):
    target, paused = new_target("file-4096", "64M"), tmp_path / "paused"
    monkeypatch.setenv("PAUSE_FOLDER", str(tmp_path))
    answers = []
    for lock in range(1, LOCKS_MOST):
        name = f"{lock if is_new else 0}.duckdb"
        path = target.path(name) if kind == "volume" else f"direct://{tmp_path}/{name}"
        committed = [] if is_new or not commit(con, path, -lock, checkpoints) else [-lock]
        with monkeypatch.context() as preloaded:
            preloaded.setenv("LD_PRELOAD", str(pause_at_locks))
            preloaded.setenv("PAUSE_AT", str(lock))
            if kind == "direct":  # which has no shared lock when it makes a file
                preloaded.setenv("PAUSE_AT_ANY", "1")
            with start_python(ONE_TURN, path, str(lock), options) as child:
                while child.poll() is None and not paused.exists():
                    pass
                came = paused.exists()
                if came and commit(con, path, 100 + lock, checkpoints):
                    committed.append(100 + lock)
                paused.unlink(missing_ok=True)
                answers.append(child.communicate(timeout=CHILD_SECONDS)[0].strip())
        committed += [lock] if answers[-1] == "committed" else []
        con.execute(f"ATTACH '{path}' AS x (READ_ONLY)")
        found = {row[0] for row in con.execute("FROM x.t").fetchall()}
        con.execute("DETACH x")
        assert found >= set(committed), f"at lock {lock}: {answers[-1]}"
        if not came:
            break
    assert not came, "it takes more locks than that"
    # An ordinary file that is being made is there, and empty, before its first lock: others are refused. Told
    # the type of what is there, DuckDB looks at it under the lock for the first time.
    refused = any("ATTACH it again" in answer for answer in answers)
    assert refused or (kind == "direct" and is_new) or (options and not is_new), answers
