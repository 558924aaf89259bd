"""Closing a database while DuckDB's threads still hold what they have read ahead."""

from __future__ import annotations

import subprocess
import sys

import pytest
import rawduck
from support import make_target

SECONDS = 5

#: DuckDB's threads run on one processor, and only when nothing else does: they are often stopped between the
#: moment when a query takes their work for done and the moment when they let go of it.
CLOSE_AGAIN_AND_AGAIN = """
import os, sys, time
import rawduck
processor = {min(os.sched_getaffinity(0))}
os.sched_setaffinity(0, processor)
end = time.monotonic() + float(sys.argv[2])
count = 0
while time.monotonic() < end:
    connection = rawduck.connect()
    connection.execute(f"ATTACH '{sys.argv[1]}' AS db (READ_ONLY); USE db")
    for thread in map(int, os.listdir("/proc/self/task")):
        if thread != os.getpid():
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setaffinity(thread, processor)
    assert connection.execute("SELECT count(s), sum(i) FROM t").fetchone() == (400000, 79999800000)
    connection.close()
    count += 1
print(count)
"""


@pytest.mark.parametrize("scheme", ["nvme", "direct"])
def test_threads_that_were_stopped_amid_reading_ahead(tmp_path, scheme):
    with make_target("file-4096", tmp_path) as target:
        path = target.path("x.duckdb") if scheme == "nvme" else f"direct://{tmp_path}/x.duckdb"
        with rawduck.connect(path) as connection:
            connection.execute("CREATE TABLE t AS SELECT i, md5(i::VARCHAR) AS s FROM range(400000) g(i)")
        command = [sys.executable, "-c", CLOSE_AGAIN_AND_AGAIN, path, str(SECONDS)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"it died with {result.returncode}: {result.stderr}"
        assert int(result.stdout) > 0
