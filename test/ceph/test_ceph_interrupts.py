"""A query that waits for an OSD that hangs ends as soon as it is interrupted, not after rados_timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import duckdb
import pytest
import rawduck
from ceph_support import ROOT, connect
from rawduck.ceph.cluster import Cluster, Options, class_directory

#: An answer within this time after the interrupt; rados_timeout is 30 s.
AT_ONCE_SECONDS = 5
PATHS = [f"rados://data/x/{number}.parquet" for number in range(3)]


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    """A cluster with one OSD, which the tests stop."""
    made = Cluster(tmp_path_factory.mktemp("i"))
    try:
        made.up(Options(osds=1), class_directory())
    except rawduck.RawduckError as error:
        pytest.skip(f"no Ceph cluster: {error}")
    made.create_pool("data", groups=4)
    with connect(made) as con:
        for path in PATHS:
            con.execute(
                f"COPY (SELECT i, random() AS v FROM range(100000) t(i)) TO '{path}' (FORMAT parquet)"
            )
    yield made
    made.down()


class Stopped:
    """Stops the OSD while it lives."""

    def __init__(self, cluster: Cluster) -> None:
        self.pid = cluster.daemon("osd.0").pid

    def __enter__(self) -> Stopped:
        os.kill(self.pid, signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGCONT)


def seconds_after_interrupt(con, query: str) -> float:
    """Interrupts the query after a second. Returns how long it then took to end."""
    interrupted = []

    def interrupt() -> None:
        interrupted.append(time.monotonic())
        con.interrupt()

    timer = threading.Timer(1, interrupt)
    timer.start()
    with pytest.raises(duckdb.InterruptException):
        con.execute(query).fetchall()
    ended = time.monotonic()
    timer.join()
    return ended - interrupted[0]


@pytest.mark.parametrize("mode", ["never", "always", "auto"])
@pytest.mark.parametrize(
    "source", [f"read_parquet({PATHS})", "read_parquet('rados://data/x/*.parquet')"], ids=["paths", "pattern"]
)
def test_the_first_request(hanging, mode, source):
    query = f"SELECT sum(i), sum(v) FROM {source} WHERE i > 5"
    with connect(hanging) as con:
        con.execute(f"SET rados_offload = '{mode}'")
        expected = con.execute(query).fetchall()
        with Stopped(hanging):
            assert seconds_after_interrupt(con, query) < AT_ONCE_SECONDS
        assert con.execute(query).fetchall()[0][0] == expected[0][0]  # the connection is as before


@pytest.mark.parametrize("mode", ["never", "always", "shared"])
def test_requests_of_a_query_that_runs(hanging, mode):
    """The OSD stops when the query has its first rows."""
    first = "SELECT -1 AS i FROM range(3000000)"
    query = f"{first} UNION ALL SELECT i FROM read_parquet({PATHS}) WHERE i % 7 = 3"
    with connect(hanging) as con:
        con.execute(f"SET rados_offload = '{mode}'")
        con.execute("SET threads = 1")
        con.execute("SET streaming_buffer_size = '100KB'")
        reader = con.execute(query)
        assert reader.fetchone() == (-1,)
        with Stopped(hanging):
            begin = time.monotonic()
            timer = threading.Timer(1, con.interrupt)
            timer.start()
            with pytest.raises(duckdb.InterruptException):
                reader.fetchall()
            assert time.monotonic() - begin < 1 + AT_ONCE_SECONDS
            timer.join()


def test_ctrl_c(hanging):
    """In Python's main thread, which waits for the OSD itself and runs no handler of signals meanwhile."""
    code = """
        import sys, time
        sys.path.insert(0, sys.argv[2])
        import duckdb
        from ceph_support import connect
        from rawduck.ceph.cluster import Cluster
        con = connect(Cluster(sys.argv[1]))
        con.execute("FROM rados_stats()").fetchall()
        query = f"SELECT sum(i) FROM '{sys.argv[3]}'"
        con.execute(query).fetchall()
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            con.execute(query).fetchall()
        except duckdb.InterruptException:
            print("interrupted", flush=True)
    """
    arguments = [str(hanging.directory), str(ROOT / "test" / "ceph"), PATHS[0]]
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A shell's background job ignores interrupts, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout.readline() == "ready\n"
    with Stopped(hanging):
        process.stdin.write("\n")
        process.stdin.flush()
        time.sleep(1)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert time.monotonic() - begin < AT_ONCE_SECONDS
    assert process.wait(60) == 0
