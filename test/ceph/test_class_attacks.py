"""Requests that are made to harm an OSD, and harm to the helper process: no OSD ends or is marked down, other
clients' operations hardly wait, and memory stays within its bound."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from ceph_support import connect, one, run_python
from class_protocol import Pool, Request, seal
from rawduck.ceph.cluster import class_directory

WORKERS = min(2, os.cpu_count() or 1)
#: docs/CEPH.md, "Limits": of the helper and its workers together.
RESIDENT_BYTES_MAX = 1400 << 20
#: Longest wait of another client's operation for one of ours.
WAIT_MS_MAX = 50
TEXTS = "SELECT md5(i::VARCHAR) || md5((i + 1)::VARCHAR) AS s, i AS a FROM range(100000) r(i)"
#: Takes some 20 seconds on these texts: its automaton has too many states to be remembered.
SLOW_REGEX = "regexp_matches(s, '([0-7].{1,30}){3}x%d')"
COLUMNS = [("s", "VARCHAR"), ("a", "BIGINT")]
SUM = Request(COLUMNS, ["sum(a)", "count(s)"], aggregate=True)


@pytest.fixture(scope="module")
def pool(cluster, tmp_path_factory):
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    path = tmp_path_factory.mktemp("attacks") / "texts.parquet"
    duckdb.sql(f"COPY ({TEXTS}) TO '{path}' (FORMAT parquet)")
    opened = Pool(cluster.conf, cluster.keyring, "data")
    opened.write("attacks/texts", path.read_bytes())
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def osds_survive(cluster, pool):
    """After each test every OSD is the process that it was, is up, and answers pushed queries."""
    before = [cluster.daemon(name).pid for name in cluster.daemon_names()]
    yield
    assert [cluster.daemon(name).pid for name in cluster.daemon_names()] == before
    assert cluster.osds_up() == cluster.options.osds
    assert answered(pool).rows == 1


def answered(pool, request: Request = SUM, seconds: float = 30):
    """The reply of a request, once the helper runs and is not busy."""
    limit = time.monotonic() + seconds
    while True:
        reply = pool.query("attacks/texts", request)
        if reply.status == "ok" or time.monotonic() > limit:
            assert reply.status == "ok", reply
            return reply
        time.sleep(0.05)


def slow(regexes: int, first: int = 0, **options) -> Request:
    return Request(
        COLUMNS, ["count(*)"], " OR ".join(SLOW_REGEX % (first + i) for i in range(regexes)), True, **options
    )


def helper_pids(cluster) -> list[int]:
    """The helper's process first, then its workers."""
    mark = f"--socket-dir={cluster.helper_directory}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (path / "cmdline").read_bytes().split(b"\0"):
                found.append(int(path.name))
    parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in found}
    return sorted(found, key=lambda pid: (parents[pid] in found, pid))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return total


#: Another client, in a process of its own, which reads 4 KiB of an object that shares its placement group
#: with the attacked one until its input ends. Prints how long each read took, in milliseconds.
BYSTANDER = """
    import json, select, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from class_protocol import Pool
    pool = Pool(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    pool.write("bystander", bytes(4096))
    waits = []
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        start = time.perf_counter()
        pool.read("bystander", 4096)
        waits.append((time.perf_counter() - start) * 1000)
    print(json.dumps(waits))
"""

#: 16 attackers in a process of their own: slow queries, and queries with large replies. Or as many that read.
ATTACKERS = """
    import sys, time
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    sys.path.insert(0, sys.argv[1])
    from class_protocol import Pool, Request
    COLUMNS = [("s", "VARCHAR"), ("a", "BIGINT")]
    stop = time.monotonic() + float(sys.argv[6])
    def attack(number):
        pool = Pool(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
        calls = 0
        while time.monotonic() < stop:
            slow = " OR ".join(sys.argv[5] % (number * 1000 + 4 * calls + i) for i in range(4))
            large = Request(COLUMNS, ["s", "a"], f"a BETWEEN {calls} AND 5000")
            request = Request(COLUMNS, ["count(*)"], slow, True, time_ms_max=3000) if number % 2 else large
            if sys.argv[7] == "read":
                pool.read("attacks/texts", 1 << 20)
            else:
                pool.query_once("attacks/texts", request, 2 << 20)
            calls += 1
        return calls
    with ThreadPoolExecutor(16) as threads:
        print(sum(threads.map(attack, range(16))))
"""


def percentile(waits: list[float], share: float) -> float:
    return sorted(waits)[int(len(waits) * share)]


def test_a_slow_regex_ends_in_time(pool):
    answered(pool)
    start = time.monotonic()
    reply = pool.query("attacks/texts", slow(4, time_ms_max=1000))
    assert reply.status == "too slow", reply
    assert time.monotonic() - start < 6  # of some 80
    # A resend is refused at once and does not do it again; sometimes others use the machine, too.
    times = []
    for _ in range(5):
        start = time.monotonic()
        assert pool.query("attacks/texts", slow(4, time_ms_max=1000)).status == "too slow"
        times.append(time.monotonic() - start)
    assert min(times) < 0.5


def test_requests_without_time_do_not_cost_workers(cluster, pool):
    answered(pool)
    before = helper_pids(cluster)
    for number in range(20):
        limited = Request(COLUMNS, ["sum(a)"], f"a > {number}", True, time_ms_max=0)
        assert pool.query("attacks/texts", limited).status == "too slow"
    assert helper_pids(cluster) == before


def test_many_regexes_and_endless_planning(pool):
    start = time.monotonic()
    assert pool.query("attacks/texts", slow(100, 10, time_ms_max=1500)).status == "too slow"
    equalities = " OR ".join(f"a = {i}" for i in range(20000))
    assert len(equalities) < 256 << 10
    planning = Request(COLUMNS, ["count(*)"], equalities, True, time_ms_max=1000)
    assert pool.query("attacks/texts", planning).status in ("too slow", "failed", "bad request")
    assert time.monotonic() - start < 30  # of half an hour


def test_others_in_the_placement_group_hardly_wait(cluster, pool):
    """16 attackers, whose queries are slow or large, and one client that reads beside them."""
    cluster.create_pool("one", groups=1)
    with open_pool(cluster, "one") as attacked:
        attacked.write("attacks/texts", pool.read("attacks/texts", 64 << 20))
    arguments = [str(Path(__file__).parent), str(cluster.conf), str(cluster.keyring), "one"]
    command = [sys.executable, "-c", textwrap.dedent(BYSTANDER), *arguments]

    def reads_beside(action) -> list[float]:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bystander:
            action()
            return json.loads(bystander.communicate()[0])

    def attack(how: str, seconds: int) -> tuple[int, list[float]]:
        calls: list[str] = []
        waits = reads_beside(
            lambda: calls.append(run_python(ATTACKERS, *arguments, SLOW_REGEX, str(seconds), how))
        )
        return int(calls[0]), waits

    # What as many clients cost that only read, on this machine at this time.
    _, beside_readers = attack("read", 3)
    calls, waits = attack("query", 6)
    high, usual = percentile(waits, 0.99), percentile(beside_readers, 0.99)
    print(
        f"{calls} calls, {len(waits)} reads beside them: median {percentile(waits, 0.5):.1f} ms, p99 "
        f"{high:.1f}, max {max(waits):.1f}; beside readers median {percentile(beside_readers, 0.5):.1f}, "
        f"p99 {usual:.1f}"
    )
    assert calls > 100
    assert high < WAIT_MS_MAX + usual


@contextlib.contextmanager
def open_pool(cluster, name: str):
    opened = Pool(cluster.conf, cluster.keyring, name)
    try:
        yield opened
    finally:
        opened.close()


def test_memory_of_repeated_outputs(cluster, pool):
    """400 times the same column: of the OSDs nothing, of the helper not more than its bound."""
    answered(pool)
    before = sum(cluster.daemon(name).memory_bytes for name in cluster.daemon_names())
    peak = [0]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.02):
            peak[0] = max(peak[0], resident_bytes(helper_pids(cluster)))

    watcher = threading.Thread(target=watch)
    watcher.start()

    def ask(number: int) -> str:
        return pool.query("attacks/texts", Request(COLUMNS, ["s"] * (400 + number))).status

    try:
        with ThreadPoolExecutor(8) as threads:
            statuses = set(threads.map(ask, range(16)))
    finally:
        stop.set()
        watcher.join()
    after = sum(cluster.daemon(name).memory_bytes for name in cluster.daemon_names())
    # A worker that used much memory does not keep it.
    for _ in range(2 * WORKERS):
        assert answered(pool).rows == 1
    assert resident_bytes(helper_pids(cluster)) < 400 << 20
    print(f"OSDs {(after - before) >> 20} MiB more, the helper at most {peak[0] >> 20} MiB")
    assert statuses <= {"too large", "failed", "busy", "too slow"}
    assert statuses & {"too large", "failed"}
    assert after - before < 200 << 20
    assert peak[0] < RESIDENT_BYTES_MAX


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "(')' = s OR " * 5000 + "true" + ")" * 5000,
        "NOT " * 30000 + "true",
        "- " * 60000 + "a > 0",
        "CASE WHEN true THEN " * 5000 + "true" + " END" * 5000,
        "a" + "::BIGINT" * 10000 + " > 0",
        "a" + " + a" * 20000 + " > 0",
        "a IN (" + ", ".join(str(i) for i in range(30000)) + ")",
        "s LIKE '" + "%a" * 50000 + "'",
    ],
    ids=["brackets", "brackets in texts", "not", "minus", "case", "casts", "sums", "in", "like"],
)
def test_nesting_and_length(pool, expression):
    """Whether it overflows the stack of a worker or is refused: the class says so."""
    reply = pool.query("attacks/texts", Request(COLUMNS, ["count(*)"], expression, True, time_ms_max=1000))
    assert reply.status in ("bad request", "failed", "too slow", "ok")


def varint(value: int) -> bytes:
    """As Thrift's compact encoding has it."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def test_a_footer_of_endless_maps_is_refused_at_once(pool):
    """Whoever may write makes the footers that op threads read: maps of booleans that take no bytes."""
    # 8,000 fields, from the ninth on, which nobody knows: a map, its items, booleans as keys and values.
    rest = varint(250_000) + bytes([0x11])
    footer = (bytes([0x9B]) + rest + (bytes([0x1B]) + rest) * 8000).ljust(512 << 10, b"\0")
    pool.write("attacks/maps", b"PAR1" + bytes(64) + footer + struct.pack("<I", len(footer)) + b"PAR1")
    start = time.monotonic()
    reply = pool.query("attacks/maps", SUM)
    assert (reply.status, time.monotonic() - start < 4) == ("corrupt", True), reply
    pool.remove("attacks/maps")


def test_brackets_in_a_text_do_not_hide_brackets(pool):
    hidden = "(')' = s OR " * 300 + "true" + ")" * 300
    reply = pool.query("attacks/texts", Request(COLUMNS, ["count(*)"], hidden, True))
    assert reply.status == "bad request", reply
    assert "nested" in reply.text


def test_the_helper_is_killed_again_and_again(cluster, pool):
    """Each call is answered: by the helper, or by "read it yourself" while there is none."""
    stop = threading.Event()
    statuses = set()

    def ask() -> None:
        while not stop.is_set():
            statuses.add(pool.query_once("attacks/texts", SUM).status)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    kills = 0
    for _ in range(6):
        time.sleep(0.7)
        for pid in helper_pids(cluster)[:1]:
            os.kill(pid, signal.SIGKILL)
            kills += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert kills > 1
    assert statuses <= {"ok", "working", "unavailable", "busy", "failed"}


def test_a_worker_is_killed_amid_its_job(cluster, pool):
    answered(pool)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(pool.query, "attacks/texts", slow(4, 500, time_ms_max=8000))
        limit = time.monotonic() + 8
        workers = helper_pids(cluster)[1:]
        before = sum(map(cpu_seconds, workers))
        while sum(map(cpu_seconds, workers)) < before + 0.1:
            assert time.monotonic() < limit
            time.sleep(0.02)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        reply = running.result()
    assert (reply.status, reply.text) == ("failed", "the request has ended its worker process")


def test_a_helper_that_hangs_costs_no_time(cluster, pool):
    """Stopped: after a few calls nobody waits for it any more."""
    answered(pool)

    def times_of(action) -> list[float]:
        times = []
        for _ in range(60):
            start = time.perf_counter()
            action()
            times.append((time.perf_counter() - start) * 1000)
            time.sleep(0.01)
        return sorted(times)

    # What calls cost that have nothing to do with the helper, on this machine at this time.
    usual = times_of(lambda: pool.call("attacks/texts", "version"))
    pids = helper_pids(cluster)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    statuses: list[str] = []
    try:
        times = times_of(lambda: statuses.append(pool.query_once("attacks/texts", SUM).status))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    print(f"calls of a stopped helper: median {times[30]:.1f} ms, max {times[-1]:.1f}")
    assert set(statuses) <= {"working", "unavailable", "busy"}
    assert statuses.count("unavailable") > 40
    assert times[-3] < WAIT_MS_MAX + usual[-3]


def test_garbage_over_the_socket(cluster, pool):
    """From this user: the connection is closed. From others: no way in."""
    answered(pool)
    pid = helper_pids(cluster)[0]
    path = str(cluster.helper_directory / "helper.sock")
    for number in range(200):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
            raw.settimeout(5)
            raw.connect(path)
            packet = bytearray(os.urandom(96 if number % 2 else 1 + number))
            if number % 4 == 1:  # a version and a kind that are right
                packet[:8] = struct.pack("<II", 2, 1 + number // 4 % 2)
            with contextlib.suppress(OSError):
                socket.send_fds(raw, [bytes(packet)], [0] * (number % 3))
                raw.recv(200)
    assert helper_pids(cluster)[0] == pid
    assert os.stat(cluster.helper_directory).st_mode & 0o077 == 0
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
            os._exit(raw.connect_ex(path))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EACCES


def test_one_helper_serves_all_osds(cluster, pool):
    """A second one in the same directory ends at once."""
    answered(pool)
    assert len(helper_pids(cluster)) == 1 + WORKERS
    helper = class_directory() / "rawduck-osd-helper"
    second = subprocess.run([helper, f"--socket-dir={cluster.helper_directory}"], timeout=30, check=False)
    assert second.returncode == 0
    assert len(helper_pids(cluster)) == 1 + WORKERS


def test_workers_cannot_open_anything(cluster, pool):
    answered(pool)
    niceness = os.getpriority(os.PRIO_PROCESS, helper_pids(cluster)[0])
    for pid in helper_pids(cluster)[1:]:
        status = Path(f"/proc/{pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        assert "Threads:\t1\n" in status
        assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) == 900
        assert os.getpriority(os.PRIO_PROCESS, pid) == niceness + 5


def test_a_user_needs_the_capability_for_the_class(cluster, pool):
    """ "allow x" is not enough: only an administrator opens a pool for a user."""
    may = ("mon", "allow r", "osd", "allow rwx pool=data, allow class rawduck query pool data")
    may_not = ("mon", "allow r", "osd", "allow rwx pool=data")
    for name, capabilities, code in (("may-push", may, 0), ("may-not-push", may_not, 1)):
        keyring = cluster.create_user(name, *capabilities)
        opened = Pool(cluster.conf, keyring, "data", user=name)
        try:
            if code == 0:
                assert opened.query("attacks/texts", SUM).status in ("ok", "busy")
            else:
                with pytest.raises(OSError, match="error 1"):
                    opened.query("attacks/texts", SUM)
        finally:
            opened.close()


def test_nonsense_in_frames(pool):
    for body in (b"", b"\0" * 64, os.urandom(5000), seal(b"")[16:] * 100):
        assert pool.call("attacks/texts", "query", seal(body))[:4] == b"RDQA"


def test_queries_go_on_beside_the_attacks(cluster, pool, data_prefix):
    """A client's queries are right while workers are killed by requests of others."""
    with connect(cluster) as con:
        con.execute(
            f"COPY (SELECT i AS a, i % 9 AS g FROM range(400000) r(i)) TO '{data_prefix}' (FORMAT parquet)"
        )
        con.execute("SET rados_offload = 'always'")
        stop = threading.Event()

        def attack(number: int) -> None:
            calls = 0
            while not stop.is_set():
                pool.query("attacks/texts", slow(4, 1000 * (number + 1) + calls, time_ms_max=300))
                calls += 1

        attackers = [threading.Thread(target=attack, args=(number,)) for number in range(2)]
        for attacker in attackers:
            attacker.start()
        try:
            for _ in range(5):
                query = f"SELECT sum(a) FROM read_parquet('{data_prefix}/*') WHERE g < 5"
                expected = sum(i for i in range(400000) if i % 9 < 5)
                assert one(con, query) == expected
        finally:
            stop.set()
            for attacker in attackers:
                attacker.join()
    assert json.loads(cluster.ceph("osd", "stat", "--format", "json"))["num_up_osds"] == cluster.options.osds
