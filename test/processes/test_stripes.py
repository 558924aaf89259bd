"""A volume on several files or devices, of which each process names another one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import rawduck
from live_volume import MIB, ROWS_OF, VOLUME_BYTES, attach, attach_latest, commit, state
from machine import loop_over
from workers import workers

MEMBERS = 3
#: Of what is asked of the writer, and of what is refused at a lock.
PROMPT_SECONDS = 5


@pytest.fixture(params=["file", "block device"])
def members(request, tmp_path: Path) -> Iterator[list[str]]:
    images = [str(tmp_path / f"m{i}.img") for i in range(MEMBERS)]
    if request.param == "block device":
        for image in images:
            with open(image, "wb") as file:
                file.truncate(VOLUME_BYTES)
    with ExitStack() as stack:
        is_file = request.param == "file"
        names = images if is_file else [stack.enter_context(loop_over(Path(image))) for image in images]
        con = rawduck.connect()
        size = f", size := '{VOLUME_BYTES // MIB}MB'" if is_file else ""
        con.execute(f"CALL nvme_format('{names[0]}', stripe_with := {names[1:]}{size})")
        con.execute(f"ATTACH 'nvme://{names[0]}/x.duckdb' AS x")
        con.execute("CREATE TABLE x.log AS SELECT 0 AS n")
        con.execute(f"CREATE TABLE x.t AS {ROWS_OF.format(0)}")
        con.close()
        yield names
        for name in names:
            check = rawduck.connect().execute("SELECT * FROM nvme_check(?) WHERE severity <> 'ok'", [name])
            assert check.fetchall() == []


def test_the_writer_is_asked_under_every_name(members):
    with workers(2) as (writer, other):
        attach(writer, members[0])
        commit(writer, 1)
        for i, name in enumerate(members):
            begin = time.monotonic()
            other.run(f"CALL nvme_snapshot('nvme://{name}/x.duckdb', 's{i}')")
            assert len(other.run(f"FROM nvme_snapshots('{name}')")) == i + 1
            assert other.run(f"FROM nvme_check('{name}') WHERE severity <> 'ok'") == []
            assert other.run(f"SELECT len(members) FROM nvme_info('{name}')") == [[MEMBERS]]
            other.run(f"CALL nvme_clone('nvme://{name}/x.duckdb@s0', 'nvme://{members[0]}/c{i}.duckdb')")
            other.run(f"CALL nvme_move('nvme://{name}/c{i}.duckdb', 'nvme://{members[1]}/d{i}.duckdb')")
            assert time.monotonic() - begin < PROMPT_SECONDS
        commit(writer, 2)
        assert state(writer, "x") == 2


def test_readers_beside_the_writer_under_every_name(members):
    with workers(1 + MEMBERS) as (writer, *readers):
        attach(writer, members[1])
        commit(writer, 1)
        for reader, name in zip(readers, members, strict=True):
            attach_latest(reader, name)
        for n in range(2, 12):
            commit(writer, n)
        assert [state(reader) for reader in readers] == [1] * MEMBERS
        writer.kill()
        assert [state(reader) for reader in readers] == [1] * MEMBERS


@pytest.mark.parametrize("named", range(MEMBERS))
def test_no_member_is_taken_from_its_volume(members, named):
    with workers(2) as (writer, reader):
        attach(writer, members[0])
        commit(writer, 1)
        attach_latest(reader, members[0])
        con = rawduck.connect()
        for _ in ("beside the writer", "beside a reader alone"):
            with pytest.raises(Exception, match=r"lock it|while somebody reads"):
                con.execute(f"CALL nvme_format('{members[named]}', force := true)")
            writer.kill()
        assert state(reader) == 1


def test_members_in_one_place_are_refused(tmp_path):
    """Headers that were made by hand: the second half of one member is the first half of the other."""
    half, header = VOLUME_BYTES // 2, 4096
    images = [str(tmp_path / f"m{i}.img") for i in range(2)]
    rawduck.connect().execute(
        f"CALL nvme_format('{images[0]}', stripe_with := ['{images[1]}'], size := '{VOLUME_BYTES // MIB}MB')"
    )
    both = tmp_path / "both.img"
    with both.open("wb") as file:
        file.truncate(3 * half)
        for start, image in ((0, images[0]), (half, images[1])):
            content = Path(image).read_bytes()
            for offset in (0, len(content) - header):
                file.seek(start + offset)
                file.write(content[offset : offset + header])
            Path(image).unlink()
    with (
        loop_over(both, "--sizelimit", str(VOLUME_BYTES)) as first,
        loop_over(both, "--offset", str(half)) as second,
    ):
        for name in (first, second):
            with pytest.raises(Exception, match="have bytes in common"):
                rawduck.connect().execute("FROM nvme_files(?)", [name])


# The first who comes is let in by all members, or by none.
def test_two_writers_who_begin_at_different_members(members):
    for first, second in ((0, 2), (2, 0), (1, 2)):
        with workers(2) as (writer, other):
            attach(writer, members[first])
            commit(writer, 1)
            answer = other.ask("run", statements=[f"ATTACH 'nvme://{members[second]}/y.duckdb' AS y"])
            assert "cannot lock it" in answer.error
            writer.run("DETACH x")
            other.run(f"ATTACH 'nvme://{members[second]}/y.duckdb' AS y")


# Whoever was refused looks a second time what it is that was locked.
def test_who_waits_for_the_writer_finds_the_whole_volume(members):
    script = (
        "import rawduck, sys, time\n"
        "for i in range(200):\n"
        "    try:\n"
        f"        con = rawduck.connect('nvme://{members[2]}/x.duckdb'); break\n"
        "    except Exception as error:\n"
        "        assert 'lock' in str(error), error; time.sleep(0.02)\n"
        "print(con.sql('SELECT max(n) FROM log').fetchall())"
    )
    with workers(1) as (writer,):
        attach(writer, members[0])
        waits = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for n in range(1, 4):
            commit(writer, n)
        writer.run("DETACH x")
        assert waits.communicate(timeout=60)[0].strip() == "[(3,)]"
