"""Databases that are closed while the process ends: by exit handlers, after thread_local objects are gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import rawduck
from support import make_target

ROWS = 200000
#: What was freed is overwritten, so that nobody reads it by luck. In DuckDB's copy of the settings, which it
#: reads after it was destroyed, a 1 says that a setting has a value, which then is garbage.
ENVIRONMENT = {**os.environ, "MALLOC_PERTURB_": "1"}

#: The database stays open until `how` closes it.
OPEN = """
import atexit, ctypes, os, sys, threading
import rawduck
how, path, settings = sys.argv[1:]
connection = rawduck.connect()
connection.execute("SET enable_progress_bar = false")  # which it prints among the answers
connection.execute(settings)
connection.execute(f"ATTACH '{path}' AS db")
connection.execute("CREATE TABLE db.t AS SELECT range AS i FROM range(199999)")
connection.execute("INSERT INTO db.t VALUES (1)")
assert connection.execute("SELECT count(*) FROM db.t").fetchone() == (200000,)
"""

#: What the C library's exit runs, as it does static destructors: those of thread_local objects come first.
FROM_THE_EXIT_OF_C = """
HANDLER = ctypes.PYFUNCTYPE(None)
def close():
    connection.close()
    os.write(1, b"closed")
handler = HANDLER(close)
library = ctypes.PyDLL(None)
register = getattr(library, "__cxa_atexit")
register.argtypes = [HANDLER, ctypes.c_void_p, ctypes.c_void_p]
register(handler, None, None)
library.exit(0)
"""

FROM_PYTHONS_ATEXIT = """
atexit.register(lambda: (connection.close(), os.write(1, b"closed")))
"""

LEFT_OPEN = """
os.write(1, b"closed")
"""

#: A thread that opened the database, goes on after the main thread and closes it.
FROM_A_THREAD_THAT_STAYS = """
def work():
    other = rawduck.connect()
    other.execute(f"ATTACH '{path}' AS db")
    threading.main_thread().join()
    other.close()
    os.write(1, b"closed")
connection.close()
threading.Thread(target=work).start()
"""

WAYS = {
    "exit of C": FROM_THE_EXIT_OF_C,
    "atexit": FROM_PYTHONS_ATEXIT,
    "left open": LEFT_OPEN,
    "thread": FROM_A_THREAD_THAT_STAYS,
}


@pytest.mark.parametrize("queue_mode", ["thread", "pool", "single", "sync"])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("scheme", ["nvme", "direct"])
def test_closed_while_the_process_ends(tmp_path, scheme, how, queue_mode):
    with make_target("file-4096", tmp_path) as target:
        path = target.path("x.duckdb") if scheme == "nvme" else f"direct://{tmp_path}/x.duckdb"
        # Long enough to lie in memory of its own, which DuckDB's copy of the settings gives back first.
        largest = "0" * 40 + "262144"
        settings = f"SET nvme_queues = 'mode={queue_mode},max_transfer={largest}'"
        command = [sys.executable, "-c", OPEN + WAYS[how], how, path, settings]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        assert (result.returncode, result.stdout) == (0, "closed"), result.stderr
        with rawduck.connect(path) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (ROWS,)


def test_closed_in_memory_while_the_process_ends():
    """Volumes in memory belong to the process, and are used after static objects are gone."""
    command = [sys.executable, "-c", OPEN + FROM_THE_EXIT_OF_C, "", "nvme://memory:exit/x.duckdb", "SELECT 1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert (result.returncode, result.stdout) == (0, "closed"), result.stderr
