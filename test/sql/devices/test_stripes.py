"""A volume on several files or loop devices, as its users meet it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack

import duckdb
import pytest
import rawduck
from rawduck.volumes import format_volume, volume_info
from support import loop_device

SIZE = "64M"
CHUNK = 65536
ROWS = 2_000_000


@pytest.fixture(params=["file", "loop"])
def members(request, tmp_path):
    """Three targets that are striped."""
    names = [str(tmp_path / f"member{number}") for number in range(3)]
    with ExitStack() as stack, rawduck.connect() as connection:
        size = SIZE
        if request.param == "loop":
            names = [stack.enter_context(loop_device(tmp_path / f"m{i}.img", 512, SIZE)) for i in range(3)]
            size = ""
        format_volume(connection, names[0], stripe_with=names[1:], chunk="64K", size=size)
        yield names


def fill(member: str) -> None:
    with rawduck.connect() as connection:
        connection.execute(f"ATTACH 'nvme://{member}/x.duckdb' AS x")
        connection.execute(f"CREATE TABLE x.t AS SELECT range AS i, hash(range) AS h FROM range({ROWS})")


def total(member: str) -> tuple:
    with rawduck.connect() as connection:
        connection.execute(f"ATTACH 'nvme://{member}/x.duckdb' AS x (READ_ONLY)")
        return connection.execute("SELECT count(*), sum(i), bit_xor(h) FROM x.t").fetchone()


def refusal(member: str) -> str:
    with rawduck.connect() as connection, pytest.raises(duckdb.Error) as raised:
        connection.execute(f"ATTACH 'nvme://{member}/x.duckdb' AS x")
    return str(raised.value)


def test_any_member_names_the_volume(members):
    fill(members[1])
    with duckdb.connect() as stock:
        query = f"SELECT count(*), sum(range), bit_xor(hash(range)) FROM range({ROWS})"
        expected = stock.execute(query).fetchone()
    for member in members:
        assert total(member) == expected
        with rawduck.connect() as connection:
            info = volume_info(connection, member)
            assert (info["members"], info["chunk"]) == (members, CHUNK)
            assert [
                row[0] for row in connection.execute("SELECT name FROM nvme_files(?)", [member]).fetchall()
            ] == ["x.duckdb"]
            findings = connection.execute("SELECT severity FROM nvme_check(?)", [member]).fetchall()
            assert {severity.lower() for (severity,) in findings} == {"ok"}


def test_reading_beside_the_writer(members):
    fill(members[0])
    with rawduck.connect() as writer, rawduck.connect() as reader:
        writer.execute(f"ATTACH 'nvme://{members[0]}/x.duckdb' AS x")
        writer.execute("INSERT INTO x.t VALUES (1, 1)")
        reader.execute(f"ATTACH 'nvme://{members[2]}/x.duckdb@latest' AS y (READ_ONLY)")
        assert reader.execute("SELECT count(*) FROM y.t").fetchone() == (ROWS + 1,)


def test_a_writer_in_another_process_has_all_members(members):
    fill(members[0])
    program = (
        "import rawduck, sys\n"
        "connection = rawduck.connect()\n"
        "connection.execute(f\"ATTACH 'nvme://{sys.argv[1]}/x.duckdb' AS x\")\n"
    )
    with rawduck.connect() as writer:
        writer.execute(f"ATTACH 'nvme://{members[0]}/x.duckdb' AS x")
        for member in members:
            with pytest.raises(AssertionError, match="cannot lock it"):
                run(program, member)
    for member in members:
        run(program, member)


def run(program: str, *arguments: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_one_member_is_not_formatted_alone(members):
    with (
        rawduck.connect() as connection,
        pytest.raises(duckdb.IOException, match=r"member \d+ of a rawduck volume on 3 targets"),
    ):
        format_volume(connection, members[1])


def test_a_missing_member_is_named(tmp_path):
    names = [str(tmp_path / f"member{number}") for number in range(3)]
    with rawduck.connect() as connection:
        format_volume(connection, names[0], stripe_with=names[1:], size=SIZE)
    fill(names[0])
    shutil.move(names[1], tmp_path / "elsewhere")
    assert total(names[0])[0] == ROWS  # in the same folder it is found
    (tmp_path / "elsewhere").unlink()
    assert f"member 1 of 3, which was {names[1]}" in refusal(names[2])


def test_an_old_copy_is_refused(tmp_path):
    names = [str(tmp_path / f"member{number}") for number in range(2)]
    with rawduck.connect() as connection:
        format_volume(connection, names[0], stripe_with=names[1:], size=SIZE)
    shutil.copy(names[1], tmp_path / "copy")
    fill(names[0])
    assert "is there twice" in refusal(str(tmp_path / "copy"))
    shutil.move(tmp_path / "copy", names[1])
    assert "one of them is a copy" in refusal(names[0])


def test_growing(tmp_path):
    names = [str(tmp_path / f"member{number}") for number in range(2)]
    with rawduck.connect() as connection:
        row = format_volume(connection, names[0], stripe_with=names[1:], size=SIZE)
        grown = connection.execute(
            "SELECT capacity, added FROM nvme_grow(?, size := '96M')", [names[1]]
        ).fetchone()
        assert grown == (row["capacity"] + 2 * 32 * 2**20, 2 * 32 * 2**20)
    fill(names[0])
    assert total(names[1])[0] == ROWS


def test_two_loop_devices_over_one_file(tmp_path):
    with loop_device(tmp_path / "m.img", 512, SIZE) as device, rawduck.connect() as connection:
        losetup = shutil.which("losetup", path="/usr/sbin:/sbin:/usr/bin")
        again = subprocess.run(
            [losetup, "--find", "--show", tmp_path / "m.img"], capture_output=True, text=True, check=True
        ).stdout.strip()
        try:
            for other in (device, again):
                with pytest.raises(duckdb.Error, match="name each drive once"):
                    format_volume(connection, device, stripe_with=[other])
        finally:
            subprocess.run([losetup, "--detach", again], check=True)


@pytest.mark.parametrize("chunk", ["8K", "100K", "32M"])
def test_chunks_that_are_not_possible(tmp_path, chunk):
    names = [str(tmp_path / f"member{number}") for number in range(2)]
    with rawduck.connect() as connection, pytest.raises(duckdb.Error, match="power of two from 16K to 16M"):
        format_volume(connection, names[0], stripe_with=names[1:], size=SIZE, chunk=chunk)
    assert not list(tmp_path.iterdir())


def test_a_chunk_needs_more_targets():
    with rawduck.connect() as connection, pytest.raises(duckdb.Error, match="name the others"):
        format_volume(connection, "memory:one", chunk="64K")


def test_the_sandbox_asks_about_every_target(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    with rawduck.connect() as connection:
        connection.execute(
            f"SET allowed_directories = ['nvme://{inside}']; SET enable_external_access = false"
        )
        with pytest.raises(duckdb.PermissionException):
            format_volume(connection, str(inside / "a"), stripe_with=[str(outside / "b")], size=SIZE)
        assert not list(inside.iterdir()) + list(outside.iterdir())
        format_volume(connection, str(inside / "a"), stripe_with=[str(inside / "b")], size=SIZE)
