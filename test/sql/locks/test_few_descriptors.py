"""A process with few file descriptors: queries go on with fewer rings, or without any, and say so."""

from __future__ import annotations

import pytest
from support import run_python

WORKLOAD = """
    import resource
    target, threads, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    connection.execute(f"SET threads = {threads}; SET nvme_queues = 'mode={mode}'")
    connection.execute("SET memory_limit = '1 GiB'; SET enable_progress_bar = false")
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
    connection.execute("CREATE TABLE x.t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(1000000)")
    connection.execute("CHECKPOINT x; DETACH x")
    connection.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
    query = "SELECT count(*), sum(v), count(DISTINCT s) FROM x.t"
    assert connection.execute(query).fetchone() == (1000000, 499999500000, 1000000)
    cursors = [connection.cursor() for _ in range(4)]
    for cursor in cursors:
        assert cursor.execute("SELECT max(s) FROM x.t WHERE v % 7 = 3").fetchone()
    reads = connection.execute(
        f"SELECT reads FROM nvme_random_reads('nvme://{target}/x.duckdb', threads := 64, reads := 640)"
    ).fetchone()
    assert reads == (640,)
    errors = connection.execute("SELECT sum(errors) FROM nvme_stats()").fetchone()
    assert errors == (0,), errors
    print(connection.execute("SELECT engine || ': ' || engine_reason FROM nvme_volumes()").fetchone()[0])
    print(len(os.listdir('/proc/self/fd')))
"""


@pytest.mark.parametrize("mode", ["thread", "pool"])
@pytest.mark.parametrize("threads", [8, 64])
def test_queries_go_on(new_target, threads, mode):
    target = new_target("file-4096")
    reason, descriptors = run_python(WORKLOAD, target.name, str(threads), mode).splitlines()
    assert int(descriptors) < 60
    if mode == "thread" and reason.startswith("io_uring"):
        assert "threads have shared queues" in reason
        assert "ulimit -n" in reason


def test_the_largest_command_works(new_target, con):
    """What the setting takes, attaching takes."""
    target = new_target("file-4096")
    con.execute("SET nvme_queues = 'max_transfer=64 MiB'")
    con.execute(f"ATTACH '{target.path('x.duckdb')}' AS x; CREATE TABLE x.t AS FROM range(100000) r(v)")
    assert con.execute("SELECT sum(v) FROM x.t").fetchone() == (4999950000,)
