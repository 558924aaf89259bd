"""Closing a database while DuckDB's threads still hold what they have read ahead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import rawduck
from support import make_target

#: Without the guard, each has a chance of one in ten or more to end the process.
CLOSINGS = 80
#: Closing waits for ten seconds at most. Threads that run only when nothing else does may need longer where
#: other programs keep all processors busy; without the guard every attempt fails.
ATTEMPTS = 3

#: DuckDB's threads run on one processor, and only when nothing else does, and take their time to let go of
#: what they have read: so they are stopped between the moment when a query takes their work for done and the
#: moment when they let go of it. Where other programs keep all processors busy they may be stopped
#: elsewhere, and a missing guard is noticed less often.
CLOSE_AGAIN_AND_AGAIN = '''
import ctypes, os, struct, sys
import _duckdb, rawduck

def slot_of_deleting_destructor(type_name):
    """A typeinfo has its name's address in its second word, and the virtual table that of the typeinfo."""
    parts = []
    for line in open("/proc/self/maps"):
        fields = line.split()
        if fields[-1] == _duckdb.__file__ and fields[1].startswith("r"):
            begin, end = (int(part, 16) for part in fields[0].split("-"))
            parts.append((begin, ctypes.string_at(begin, end - begin)))
    def places(what):
        for begin, memory in parts:
            at = memory.find(what)
            while at >= 0:
                yield begin + at
                at = memory.find(what, at + 1)
    names = [place + 1 for place in places(b"\\0" + type_name + b"\\0")]
    infos = [place - 8 for name in names for place in places(struct.pack("<Q", name))]
    tables = [place + 16 for info in infos for place in places(struct.pack("<QQ", 0, info))]
    (table,) = set(tables)
    return table + 8

slot = slot_of_deleting_destructor(b"N6duckdb17CallbackAsyncTaskE")
assert ctypes.CDLL(sys.argv[3]).Hook(ctypes.c_void_p(slot)) == 0
processor = {min(os.sched_getaffinity(0))}
os.sched_setaffinity(0, processor)
for _ in range(int(sys.argv[2])):
    connection = rawduck.connect()
    connection.execute("SET enable_progress_bar = false")  # which it prints among the answers
    connection.execute(f"ATTACH '{sys.argv[1]}' AS db (READ_ONLY); USE db")
    for thread in map(int, os.listdir("/proc/self/task")):
        if thread != os.getpid():
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(thread, processor)
    assert connection.execute("SELECT count(s), sum(i) FROM t").fetchone() == (400000, 79999800000)
    connection.close()
print("closed")
'''


@pytest.fixture(scope="module")
def slow_release(tmp_path_factory) -> Path:
    library = tmp_path_factory.mktemp("closing") / "slow_release.so"
    source = Path(__file__).with_name("slow_release.cpp")
    subprocess.run(["c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.mark.parametrize("scheme", ["nvme", "direct"])
def test_threads_that_were_stopped_amid_reading_ahead(tmp_path, scheme, slow_release):
    with make_target("file-4096", tmp_path) as target:
        path = target.path("x.duckdb") if scheme == "nvme" else f"direct://{tmp_path}/x.duckdb"
        with rawduck.connect(path) as connection:
            connection.execute("CREATE TABLE t AS SELECT i, md5(i::VARCHAR) AS s FROM range(400000) g(i)")
        command = [sys.executable, "-c", CLOSE_AGAIN_AND_AGAIN, path, str(CLOSINGS), str(slow_release)]
        for _ in range(ATTEMPTS):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0:
                break
        assert result.returncode == 0, f"it died with {result.returncode}: {result.stderr}"
        assert result.stdout == "closed\n"
