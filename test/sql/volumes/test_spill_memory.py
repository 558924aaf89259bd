"""Spilled blocks in memory that is free, on this machine and in a control group."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
import rawduck
from holders import unshared
from rawduck.measuring.control_group import ControlGroups
from support import make_target, one, start_python
from test_spill import SPILLING, spilling_connection

MIB = 2**20
ROWS = 3_000_000
#: Opened once, so that the volume stays mounted, with its counters.
HELD = "SELECT coalesce(max(spill_buffer_bytes), 0) FROM nvme_volumes()"
#: A child that joins a control group, if one is given, and then spills what it sorts. Its result is fetched
#: while it is held.
SPILLER = f"""
    from pathlib import Path
    from rawduck.measuring.control_group import join
    if sys.argv[1]:
        join(Path(sys.argv[1]))
    con = rawduck.connect(config={{"memory_limit": "100MB", "threads": 2, "block_allocator_memory": "0B"}})
    con.execute("SET enable_progress_bar = false")
    con.execute(f"ATTACH 'nvme://{{sys.argv[2]}}/holder.duckdb' AS holder")
    con.execute(f"SET temp_directory = 'nvme://{{sys.argv[2]}}/tmp'")
    volumes = con.cursor()
    def volume(column):
        return volumes.execute(f"SELECT {{column}} FROM nvme_volumes()").fetchone()[0]
    con.execute("SELECT md5(range::VARCHAR) AS s, range FROM range({ROWS}) ORDER BY s")
    rows = con.fetchmany(1)
    print("ready", volume("spill_buffer_bytes"), flush=True)
    input()
    print(volume("spill_buffer_bytes"), volume("spill_bytes_given_way"), flush=True)
    count, total, last = 0, 0, ""
    while rows:
        count, total = count + len(rows), total + sum(row[1] for row in rows)
        texts = [row[0] for row in rows]
        assert last <= texts[0] and texts == sorted(texts)
        last, rows = texts[-1], con.fetchmany(100_000)
    print(count, total, flush=True)
"""
#: Takes so much memory, step by step, and waits.
HOG = """
    from pathlib import Path
    from rawduck.measuring.control_group import join
    join(Path(sys.argv[1]))
    taken = []
    for _ in range(int(sys.argv[2]) // (4 * 2**20)):
        taken.append(bytearray(b"x") * (4 * 2**20))
        time.sleep(0.02)
    print("ready", flush=True)
    input()
"""


@pytest.fixture
def groups():
    try:
        return ControlGroups.find("memory")
    except rawduck.RawduckError as error:
        pytest.skip(str(error))


def limits(groups: ControlGroups, mib: int) -> dict[str, str]:
    limit = str(mib * MIB)
    if groups.kind == "cgroup":
        return {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
    return {"memory.max": limit, "memory.swap.max": "0"}


def killed(groups: ControlGroups, group: Path) -> int:
    """How often the kernel has killed a process of the group for want of memory."""
    name = "memory.oom_control" if groups.kind == "cgroup" else "memory.events"
    counters = dict(line.split() for line in (group / name).read_text().splitlines())
    return int(counters["oom_kill"])


def available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def bytes_in_memory_files() -> int:
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            if "memfd:rawduck-spill" in str(entry.readlink()):
                total += entry.stat().st_blocks * 512
    return total


def watch(con, query: str, stop: threading.Event, seen: list) -> None:
    cursor = con.cursor()
    while not stop.is_set():
        seen.append(one(cursor, query))
        time.sleep(0.01)


def test_grows_while_memory_is_free_and_gives_it_back_afterwards(tmp_path):
    if available_bytes() < 6 * 1024 * MIB:
        pytest.skip("less than 6 GiB of memory are available")
    with make_target("file-4096", tmp_path, size="1G") as target, spilling_connection(target) as con:
        assert one(con, "SELECT current_setting('nvme_spill_buffer')") == "auto"
        con.execute(f"ATTACH '{target.path('holder.duckdb')}' AS holder")
        written = "SELECT sum(bytes) FROM nvme_stats() WHERE target = ? AND operation = 'write'"
        before = one(con, written, target.name)
        seen: list[int] = []
        stop = threading.Event()
        watcher = threading.Thread(target=watch, args=(con, HELD, stop, seen))
        watcher.start()
        try:
            result = con.execute(SPILLING).fetchone()
        finally:
            stop.set()
            watcher.join()
        assert max(seen) > 64 * MIB
        assert one(con, written, target.name) - before < MIB
        reads, hits = con.execute(
            "SELECT spill_reads, spill_reads_from_memory FROM nvme_volumes()"
        ).fetchone()
        assert reads == hits > 0
        until = time.monotonic() + 30
        while one(con, HELD) > 32 * MIB and time.monotonic() < until:
            time.sleep(0.1)
        assert one(con, HELD) <= 32 * MIB
        assert bytes_in_memory_files() == 0
        assert one(con, "SELECT spill_bytes_given_way FROM nvme_volumes()") == 0
    with rawduck.connect() as con:
        assert con.execute(SPILLING).fetchone() == result


def run_spiller(group: Path | str, target: str, answer: str, within: tuple[str, ...] = ()) -> str:
    with start_python(SPILLER, str(group), target, within=within, before="") as child:
        output, errors = child.communicate(answer, timeout=300)
        assert child.returncode == 0, errors
    return output


def test_stays_within_the_limit_of_its_control_group(tmp_path, groups):
    with make_target("file-4096", tmp_path, size="1G") as target, groups.group(limits(groups, 512)) as group:
        lines = run_spiller(group, target.name, answer="\n").splitlines()
        assert killed(groups, group) == 0
    held = int(lines[0].split()[1])
    assert 28 * MIB < held < 400 * MIB
    assert lines[2] == f"{ROWS} {sum(range(ROWS))}"


@pytest.mark.parametrize("hidden", ["mount -t tmpfs none /sys/fs/cgroup", "umount -R -l /sys", "namespace"])
def test_does_not_grow_where_its_control_group_is_not_shown(tmp_path, groups, hidden):
    """A sandbox: what the machine has says nothing about what the group has left."""
    with make_target("file-4096", tmp_path, size="1G") as target, groups.group(limits(groups, 512)) as group:
        enter = f"echo $$ > {group}/cgroup.procs"
        if hidden == "namespace":  # the mount has another root than what the process sees as its own
            within = (*unshared("--mount", enter), *unshared("--cgroup", "true"))
        else:
            within = unshared("--mount", f"{enter} && {hidden}")
        lines = run_spiller("", target.name, "\n", within).splitlines()
        assert killed(groups, group) == 0
    assert int(lines[0].split()[1]) <= 32 * MIB
    assert lines[2] == f"{ROWS} {sum(range(ROWS))}"


def test_gives_way_to_another_process_of_its_control_group(tmp_path, groups):
    mib = 640
    usage = "memory.usage_in_bytes" if groups.kind == "cgroup" else "memory.current"
    with make_target("file-4096", tmp_path, size="1G") as target, groups.group(limits(groups, mib)) as group:
        with start_python(SPILLER, str(group), target.name, before="") as spiller:
            before = int(spiller.stdout.readline().split()[1])
            rest = mib * MIB - int((group / usage).read_text()) - 10 * MIB
            with start_python(HOG, str(group), str(rest), before="") as hog:
                assert hog.stdout.readline() == "ready\n", hog.stderr.read()
                spiller.stdin.write("\n")
                spiller.stdin.flush()
                after, given_way = map(int, spiller.stdout.readline().split())
                total = spiller.stdout.readline()
            assert killed(groups, group) == 0
        assert given_way > 16 * MIB
        assert after < before
        assert total == f"{ROWS} {sum(range(ROWS))}\n"


def test_a_volume_sees_what_another_process_took(tmp_path, groups):
    """Both grow, and together they leave the reserve of their control group alone."""
    with make_target("file-4096", tmp_path, size="1G") as target, groups.group(limits(groups, 800)) as group:
        other = tmp_path / "other"
        other.mkdir()
        with make_target("file-4096", other, size="1G") as second:
            with (
                start_python(SPILLER, str(group), target.name, before="") as one_spiller,
                start_python(SPILLER, str(group), second.name, before="") as other_spiller,
            ):
                for spiller in (one_spiller, other_spiller):
                    assert spiller.stdout.readline().startswith("ready"), spiller.stderr.read()
                for spiller in (one_spiller, other_spiller):
                    output, errors = spiller.communicate("\n", timeout=300)
                    assert output.splitlines()[-1] == f"{ROWS} {sum(range(ROWS))}", errors
            assert killed(groups, group) == 0
