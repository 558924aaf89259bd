"""Formatting with force destroys what somebody has seen and agreed to, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import duckdb
import pytest
import rawduck
from holders import held
from rawduck.volumes import format_volume
from support import AtTerminal, at_terminal, failed, file_names, loop_device, one, run_cli, run_python

SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"
MIB = 1024**2
#: What errors of formatting say, in names.
MISLEADING = (
    "a. Formatting destroys what is there",
    "it is a rawduck volume",
    "b: refused to format: it is a member of a rawduck volume",
)


def make_volume(path: Path, label: str = "") -> str:
    """Its UUID."""
    with rawduck.connect() as connection:
        return str(format_volume(connection, str(path), size="32M", label=label)["uuid"])


def uuid_of(path: Path) -> str:
    with rawduck.connect() as connection:
        return one(connection, "SELECT uuid::VARCHAR FROM nvme_info(?)", str(path))


def make_file(path: Path) -> Path:
    path.write_bytes(b"text" * 8_000_000)
    return path


def is_volume(path: Path) -> bool:
    return run_cli("info", str(path)).returncode == 0


def tool(name: str) -> str:
    path = shutil.which(name, path=SBIN)
    if not path:
        pytest.skip(f"{name} is not installed")
    return path


def occupants(connection, *targets: object) -> list[tuple]:
    query = "SELECT target, kind, description, uuid FROM nvme_occupants(?, stripe_with := ?)"
    names = [str(target) for target in targets]
    return connection.execute(query, [names[0], names[1:]]).fetchall()


def identities(connection, *targets: object) -> list[str]:
    query = "SELECT identity FROM nvme_occupants(?, stripe_with := ?)"
    names = [str(target) for target in targets]
    return [row[0] for row in connection.execute(query, [names[0], names[1:]]).fetchall()]


def format_agreed(connection, target: object, agreed: list[str], others: list[str] | None = None) -> None:
    query = "CALL nvme_format(?, force := true, agreed := ?, stripe_with := ?)"
    connection.execute(query, [str(target), agreed, others or []])


# At a terminal.


@pytest.mark.parametrize(("answer", "destroyed"), [("y", True), ("n", False), ("", False)])
def test_it_asks_at_a_terminal(file_target, con, answer, destroyed):
    with rawduck.connect(file_target.path("x.duckdb")) as other:
        other.execute("CREATE TABLE t AS SELECT 42 AS v")
    uuid = uuid_of(file_target.name)
    code, printed = at_terminal("format", "--force", file_target.name, answer=answer)
    assert "it is a rawduck volume" in "".join(printed.splitlines())
    assert uuid in "".join(printed.splitlines())
    assert code == (0 if destroyed else 2)
    assert file_names(con, file_target) == ([] if destroyed else ["x.duckdb"])


@pytest.mark.parametrize(("answer", "destroyed"), [("thesis.odt", True), ("y", False)])
def test_a_file_that_is_no_volume_has_to_be_named(tmp_path, answer, destroyed):
    path = make_file(tmp_path / "thesis.odt")
    assert at_terminal("format", "--force", str(path), answer=answer)[0] == (0 if destroyed else 2)
    assert is_volume(path) == destroyed


@pytest.mark.parametrize("name", MISLEADING)
def test_what_a_name_says_decides_nothing(tmp_path, name):
    path = make_file(tmp_path / name)
    assert at_terminal("format", "--force", str(path), answer="y")[0] == 2
    assert not is_volume(path)
    assert path.read_bytes().startswith(b"text")
    assert at_terminal("format", "--force", str(path), answer=name)[0] == 0
    assert is_volume(path)


@pytest.mark.parametrize("name", MISLEADING)
def test_what_a_name_says_decides_nothing_for_scripts(tmp_path, name):
    path = make_file(tmp_path / name)
    assert "--force --yes" in failed("format", "--force", str(path))
    assert path.read_bytes().startswith(b"text")


# In SQL.


def test_null_is_no_consent(tmp_path, con):
    """list() of no rows is NULL: whoever agreed to nothing has not agreed to what came since."""
    path = tmp_path / "a.rawduck"
    con.execute("CREATE TEMP TABLE seen AS FROM nvme_occupants(?)", [str(path)])
    for agreed, why in (("list(identity)", "agreed is NULL"), ("coalesce(list(identity), [])", "agreed to")):
        con.execute(f"SET VARIABLE agreed = (SELECT {agreed} FROM seen)")
        if not path.exists():
            make_volume(path)
        uuid = uuid_of(path)
        query = "CALL nvme_format(?, force := true, agreed := getvariable('agreed'))"
        with pytest.raises(duckdb.Error, match=why):
            con.execute(query, [str(path)])
        assert uuid_of(path) == uuid


EXAMINE_AND_FORMAT = """
query = "SELECT list(identity) FROM nvme_occupants(?)"
found = connection.execute(query, [sys.argv[1]]).fetchone()[0]
print(len(found), found == sys.argv[2:])
connection.execute("CALL nvme_format(?, force := true, agreed := ?)", [sys.argv[1], found])
"""


def test_what_cannot_be_read_can_be_formatted(tmp_path, con, monkeypatch):
    """A drive with a bad LBA, for which that is the cure."""
    path = tmp_path / "a.rawduck"
    uuid = make_volume(path)
    readable = identities(con, path)
    library = tmp_path / "unreadable.so"
    source = Path(__file__).with_name("unreadable.cpp")
    subprocess.run(["c++", "-std=c++17", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("UNREADABLE", str(path))
    monkeypatch.setenv("UNREADABLE_AT", str(700 * 1024))
    assert run_python(EXAMINE_AND_FORMAT, str(path), *readable) == "1 False"
    assert uuid_of(path) != uuid


# While the question is open.


def another_volume(path: Path) -> None:
    """It has the same description."""
    other = path.with_name("other")
    make_volume(other)
    other.rename(path)


def a_database(path: Path) -> None:
    with rawduck.connect(f"nvme://{path}/x.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 42 AS v")


def other_text(path: Path) -> None:
    """Far from both ends, and the size stays."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"more")


@pytest.mark.parametrize("change", [another_volume, a_database])
def test_a_volume_that_became_another_one_stays(tmp_path, con, change):
    path = tmp_path / "volume"
    make_volume(path)
    terminal = AtTerminal("format", "--force", str(path))
    terminal.read_until("Destroy it?")
    change(path)
    uuid = uuid_of(path)
    files = con.execute("SELECT name FROM nvme_files(?)", [str(path)]).fetchall()
    terminal.answer("y")
    code, printed = terminal.end()
    assert (code, "not what was agreed to" in "".join(printed.splitlines())) == (2, True), printed
    assert uuid_of(path) == uuid
    assert con.execute("SELECT name FROM nvme_files(?)", [str(path)]).fetchall() == files


def test_a_file_that_was_written_to_stays(tmp_path):
    path = make_file(tmp_path / "thesis.odt")
    terminal = AtTerminal("format", "--force", str(path))
    terminal.read_until("type its name")
    other_text(path)
    terminal.answer("thesis.odt")
    assert terminal.end()[0] == 2
    assert b"more" in path.read_bytes()


def test_a_file_that_came_meanwhile_stays(tmp_path):
    """Nothing was there to ask about."""
    path = tmp_path / "new"
    with rawduck.connect() as connection:
        agreed = identities(connection, path)
        assert agreed == []
        make_file(path)
        with pytest.raises(duckdb.IOException, match="not what was agreed to"):
            connection.execute("CALL nvme_format(?, size := '32M', force := true, agreed := [])", [str(path)])
    assert path.read_bytes() == b"text" * 8_000_000


def test_what_lies_in_a_partition_is_part_of_it(partitions, con):
    disk, _, second = partitions
    assert [row[1] for row in occupants(con, disk)] == ["partitions"]
    agreed = identities(con, disk)
    assert identities(con, disk) == agreed
    con.execute("CALL nvme_format(?)", [second])
    with pytest.raises(duckdb.IOException, match="not what was agreed to"):
        format_agreed(con, disk, agreed)
    assert is_volume(Path(second))
    format_agreed(con, disk, identities(con, disk))
    assert is_volume(Path(disk))


def test_a_partition_table(tmp_path, con):
    with loop_device(tmp_path / "disk.img", 512, "128M") as device:
        table = "label: gpt\nlabel-id: 01234567-89AB-CDEF-0123-456789ABCDEF\n,32M\n,\n"
        subprocess.run([tool("sfdisk"), "--quiet", device], input=table, text=True, check=True)
        kind, description, uuid = occupants(con, device)[0][1:]
        assert (kind, description) == ("partition table", "it carries a partition table (gpt)")
        assert uuid == "01234567-89ab-cdef-0123-456789abcdef"


# Without a terminal.


def test_a_script_has_to_say_yes(file_target, tmp_path, con):
    uuid = uuid_of(file_target.name)
    for target in (file_target.name, str(make_file(tmp_path / "thesis.odt"))):
        before = Path(target).read_bytes()
        message = failed("format", "--force", target)
        assert "no terminal" in message
        assert "--force --yes" in message
        assert failed("format", "--yes", target)
        assert Path(target).read_bytes() == before
    result = run_cli("format", "--force", "--yes", "--json", file_target.name)
    assert (result.returncode, json.loads(result.stdout)["target"]) == (0, file_target.name), result.stderr
    assert f"{file_target.name}: it is a rawduck volume, UUID {uuid}" in result.stderr
    result = run_cli("format", "--force", "--yes", str(tmp_path / "thesis.odt"))
    assert (result.returncode, "non-empty file of 32000000 bytes" in result.stderr) == (0, True)


@pytest.mark.parametrize("sector_size", [512, 4096])
def test_a_device_and_its_file_system(tmp_path, sector_size):
    mkfs = tool("mkfs.ext4")
    with loop_device(tmp_path / "disk.img", sector_size, "64M") as device:
        subprocess.run([mkfs, "-q", "-L", "precious", device], check=True, capture_output=True)
        message = failed("format", "--force", device)
        assert "it carries an ext4 file system (label precious), UUID" in message
        subprocess.run([tool("e2fsck"), "-f", "-n", device], check=True, capture_output=True)
        assert at_terminal("format", "--force", device, answer="n")[0] == 2
        subprocess.run([tool("e2fsck"), "-f", "-n", device], check=True, capture_output=True)
        assert at_terminal("format", "--force", device, answer="y")[0] == 0
        assert is_volume(Path(device))


def test_where_nothing_lies_nothing_is_asked(tmp_path):
    zeros = tmp_path / "zeros"
    with zeros.open("wb") as file:
        file.truncate(64 * MIB)
    with loop_device(tmp_path / "disk.img", 512, "64M") as device:
        for arguments in ([str(zeros)], [str(tmp_path / "new"), "--size", "32M"], [device]):
            result = run_cli("format", "--force", *arguments)
            assert (result.returncode, result.stderr) == (0, "")
    assert failed("format", "--force", str(tmp_path / "newer")).count("--size") == 1


def test_what_is_in_use_is_not_asked_about(tmp_path):
    path = tmp_path / "volume"
    make_volume(path)
    with held(f"nvme://{path}/x.duckdb") as child:
        code, printed = at_terminal("format", "--force", str(path), answer="y")
        assert (code, "Destroy it?" in printed) == (2, False), printed
        assert str(child.pid) in failed("format", "--force", "--yes", str(path))


# Several targets.


def test_members_of_a_stripe_are_all_shown(tmp_path, con):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    make_volume(first, "sales")
    make_file(third)
    names = [str(first), str(second), str(third)]
    message = failed("format", "--force", *names, "--size", "32M")
    assert f"{first}: it is a rawduck volume (label sales)" in message
    assert f"{third}: it is a non-empty file" in message
    assert str(second) not in message
    terminal = AtTerminal("format", "--force", *names, "--size", "32M")
    terminal.read_until("type its name, third")
    terminal.answer("third")
    terminal.read_until("Destroy it?")
    terminal.answer("n")
    assert terminal.end()[0] == 2
    assert not second.exists()
    assert [row[1] for row in occupants(con, *names)] == ["volume", "file"]
    result = run_cli("format", "--force", "--yes", *names, "--size", "32M")
    assert result.returncode == 0, result.stderr
    assert [row[:2] for row in occupants(con, *names)] == [(name, "member") for name in names]
    assert len({row[3] for row in occupants(con, *names)}) == 1  # the stripe's


def test_a_member_that_has_changed_keeps_the_others(tmp_path, con):
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        make_volume(path)
    agreed = identities(con, *paths)
    a_database(paths[1])
    before = [uuid_of(path) for path in paths]
    for given in (agreed, agreed[:1], []):
        with pytest.raises(duckdb.IOException, match="not what was agreed to"):
            format_agreed(con, paths[0], given, [str(paths[1])])
    assert [uuid_of(path) for path in paths] == before
    format_agreed(con, paths[0], identities(con, *paths), [str(paths[1])])
    assert one(con, "SELECT len(members) FROM nvme_info(?)", str(paths[0])) == 2


# In SQL.


def test_looking_changes_nothing(file_target, con):
    before = os.stat(file_target.name).st_mtime_ns, Path(file_target.name).read_bytes()
    uuid = uuid_of(file_target.name)
    rows = occupants(con, file_target.name)
    assert rows == [(file_target.name, "volume", "it is a rawduck volume", uuid)]
    assert identities(con, file_target.name) == identities(con, file_target.name)
    assert (os.stat(file_target.name).st_mtime_ns, Path(file_target.name).read_bytes()) == before


def test_exactly_what_was_agreed_to(tmp_path, con):
    path = tmp_path / "volume"
    uuid = make_volume(path)
    agreed = identities(con, path)
    for other in ([], [*agreed, "volume:0"], ["volume:0"]):
        with pytest.raises(duckdb.IOException, match=r"now: it is a rawduck volume"):
            format_agreed(con, path, other)
    assert uuid_of(path) == uuid
    with pytest.raises(duckdb.InvalidInputException, match="force := true"):
        con.execute("CALL nvme_format(?, agreed := ?)", [str(path), agreed])
    format_agreed(con, path, agreed)
    assert uuid_of(path) != uuid
    os.truncate(path, 0)
    os.truncate(path, 64 * MIB)
    with pytest.raises(duckdb.IOException, match="Now nothing does"):
        format_agreed(con, path, agreed)


def test_a_copy_of_it_is_not_it(tmp_path, con):
    path, copy = tmp_path / "volume", tmp_path / "copy"
    make_volume(path)
    shutil.copy2(path, copy)
    assert not set(identities(con, path)) & set(identities(con, copy))


def test_a_volume_in_memory(con):
    target = "memory:consent"
    assert occupants(con, target) == []
    con.execute("CALL nvme_format(?, size := '32M')", [target])
    assert [row[1] for row in occupants(con, target)] == ["memory"]
    agreed = identities(con, target)
    con.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS consented; CREATE TABLE consented.t AS SELECT 1")
    con.execute("DETACH consented")
    with pytest.raises(duckdb.IOException, match="not what was agreed to"):
        format_agreed(con, target, agreed)
    format_agreed(con, target, identities(con, target))
    assert one(con, "SELECT files FROM nvme_info(?)", target) == 0


def test_a_label_that_is_no_text(tmp_path, con):
    path = tmp_path / "volume"
    make_volume(path, "sales")
    with path.open("r+b") as file:
        file.seek(168)
        file.write(b"\xff")
    assert [row[2] for row in occupants(con, path)] == ["it is a rawduck volume (label ?ales)"]
    assert "(label ?ales)" in failed("format", str(path))


@pytest.mark.parametrize(
    ("leave", "code", "said"), [("interrupt", 130, "interrupted"), ("end_input", 2, "no answer")]
)
def test_a_question_without_an_answer(file_target, leave, code, said):
    terminal = AtTerminal("format", "--force", file_target.name)
    terminal.read_until("Destroy it?")
    getattr(terminal, leave)()
    ended, printed = terminal.end()
    assert ended == code
    assert printed.splitlines()[-1].startswith(f"rawduck: {said}")
    assert is_volume(Path(file_target.name))


def test_of_a_member_the_whole_volume_is_named(tmp_path):
    members = [tmp_path / "a", tmp_path / "b"]
    with rawduck.connect() as connection:
        format_volume(connection, str(members[0]), size="32M", stripe_with=[str(members[1])])
        ((_, kind, description, _),) = occupants(connection, members[1])
    assert kind == "member"
    assert f"member 1 of a rawduck volume on 2 targets ({members[0]}, {members[1]})" in description
    assert "which is lost with it" in description


@pytest.mark.parametrize("command", [("bench", "micro", "--quick"), ("demo",)])
def test_what_only_has_the_name_of_a_program_s_own_volume_stays(tmp_path, command):
    """The programs make theirs anew each time, and ask nobody."""
    volume = tmp_path / f"{command[0]}.rawduck"
    assert run_cli("format", str(volume), "--size", "32M").returncode == 0
    rawduck.connect(f"nvme://{volume}/mine.duckdb").close()
    before = volume.read_bytes()
    result = run_cli(*command, "--target", str(volume), "--work-dir", str(tmp_path))
    assert (result.returncode, "was not made here" in result.stderr) == (2, True), result.stderr
    assert volume.read_bytes() == before
