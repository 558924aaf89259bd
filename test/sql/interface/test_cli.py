"""The `rawduck` command: what it prints, and its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import rawduck
from rawduck import tpch
from rawduck.commands import demo
from rawduck.commands.top import rates
from support import Image, failed, make_target, one, run_cli, succeeded

COMMANDS = (
    "devices",
    "format",
    "grow",
    "info",
    "ls",
    "cp",
    "mv",
    "rm",
    "trim",
    "check",
    "bench",
    "demo",
    "vfio",
    "extension-path",
    "version",
)


@pytest.fixture
def stock_file(tmp_path):
    path = tmp_path / "sales.duckdb"
    with duckdb.connect(str(path)) as stock:
        stock.execute("CREATE TABLE t AS SELECT range AS v, md5(range::VARCHAR) AS s FROM range(200000)")
    return path


def test_help_lists_every_command():
    output = succeeded("-h")
    assert all(re.search(rf"^\W*{command}\s", output, re.MULTILINE) for command in COMMANDS)
    assert "Example" in succeeded("format", "--help")


def test_closed_standard_streams(tmp_path):
    """As some supervisors start what they run."""
    command = str(Path(sys.executable).with_name("rawduck"))
    image = str(tmp_path / "disk.rawduck")
    for arguments in (("format", image, "--size", "64M"), ("info", image), ("version",)):
        closed = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', command, *arguments]
        assert subprocess.run(closed, check=False).returncode == 0, arguments
    succeeded("check", image)


def test_version_and_extension_path():
    assert rawduck.__version__ in succeeded("version")
    assert Path(succeeded("extension-path").strip()).name == "rawduck.duckdb_extension"


def test_format_info_ls_cp_rm(tmp_path, stock_file):
    target = tmp_path / "disk.rawduck"
    assert "64.0 MiB" in succeeded("format", str(target), "--size", "64M", "--label", "mine")
    assert target.stat().st_size == 64 * 1024**2
    info = json.loads(succeeded("info", str(target), "--json"))
    assert (info["label"], info["files"], info["lba_size"]) == ("mine", 0, 4096)
    assert "mine" in succeeded("info", str(target))
    succeeded("cp", str(stock_file), f"nvme://{target}/")
    listing = json.loads(succeeded("ls", str(target), "--json"))
    assert [(file["name"], file["size"]) for file in listing] == [("sales.duckdb", stock_file.stat().st_size)]
    assert "sales.duckdb" in succeeded("ls", str(target), "--extents")
    succeeded("cp", f"nvme://{target}/sales.duckdb", str(tmp_path / "back.duckdb"))
    assert (tmp_path / "back.duckdb").read_bytes() == stock_file.read_bytes()
    succeeded("rm", f"nvme://{target}/sales.duckdb")
    assert json.loads(succeeded("ls", str(target), "--json")) == []


def test_relative_paths(tmp_path, stock_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    succeeded("format", "disk.rawduck", "--size", "64M")
    succeeded("cp", "sales.duckdb", f"nvme://{tmp_path}/disk.rawduck/a.duckdb")
    succeeded("cp", f"nvme://{tmp_path}/disk.rawduck/a.duckdb", "b.duckdb")
    assert (tmp_path / "b.duckdb").read_bytes() == stock_file.read_bytes()


def test_cp_to_a_volume_keeps_the_name(file_target, stock_file):
    """With or without a slash behind the volume, as for a folder."""
    plain = stock_file.with_name("plain.txt")
    plain.write_text("plain")
    succeeded("cp", str(plain), f"nvme://{file_target.name}")
    succeeded("cp", str(stock_file), f"nvme://{file_target.name}/")
    assert {row["name"] for row in json.loads(succeeded("ls", file_target.name, "--json"))} == {
        "plain.txt",
        "sales.duckdb",
    }
    assert "names a volume but no file" in failed("cp", f"nvme://{file_target.name}", str(plain) + "2")


def test_cp_of_what_is_not_there_or_is_the_same(file_target, stock_file):
    missing = stock_file.with_name("missing.duckdb")
    for source in (f"{missing}", f"direct://{missing}"):
        message = failed("cp", source, file_target.path("copy.duckdb"))
        assert str(missing) in message
        assert "No such file" in message
        assert "Errno" not in message, "it is not Python that says so"
    link = stock_file.with_name("link.duckdb")
    link.hardlink_to(stock_file)
    for source in (f"{link}", f"direct://{stock_file}"):
        assert "are the same" in failed("cp", "--overwrite", source, str(stock_file))


def test_names_that_look_like_emoji_or_markup(file_target, stock_file):
    for name in (":a:", "[bold]b", ":smile:.duckdb"):
        path = file_target.path(name)
        assert path in succeeded("cp", str(stock_file), path)
        assert f"\n{name} " in succeeded("ls", file_target.name)
        assert path in failed("cp", str(stock_file), path)


def test_the_path_of_a_file_where_a_volume_is_meant(file_target, stock_file):
    path = file_target.path("sales.duckdb")
    succeeded("cp", str(stock_file), path)
    said = f"{file_target.name} is no directory. A volume is named without the files on it"
    assert said in failed("ls", path)
    assert said in failed("info", path.removeprefix("nvme://") + "/x")


def test_cp_does_not_overwrite_unasked(file_target, stock_file):
    destination = file_target.path("sales.duckdb")
    succeeded("cp", str(stock_file), destination)
    assert "overwrite" in failed("cp", str(stock_file), destination)
    succeeded("cp", "--overwrite", str(stock_file), destination)


def test_json_of_devices():
    devices = json.loads(succeeded("devices", "--json"))
    assert all({"path", "capacity", "lba_size", "in_use"} <= set(device) for device in devices)
    succeeded("devices")


def test_check_of_a_sound_volume(durable_target):
    with rawduck.connect(durable_target.path("x.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT range AS v FROM range(100000)")
    assert "sound" in succeeded("check", durable_target.name)
    findings = json.loads(succeeded("check", durable_target.name, "--json"))
    assert {finding["severity"] for finding in findings} == {"ok"}


def test_check_of_a_damaged_volume(tmp_path):
    with make_target("file-4096", tmp_path) as target:
        with rawduck.connect(target.path("x.duckdb")) as con:
            con.execute("CREATE TABLE t AS SELECT range AS v FROM range(100000)")
            con.execute("CHECKPOINT")
            extents = one(con, "SELECT extent_list FROM nvme_files(?)", target.name)
        Image(target).write(extents[0]["lba"] * target.lba_size, b"\xff" * 12288)
        result = run_cli("check", target.name)
        assert result.returncode == 1, result.stdout + result.stderr
        assert "x.duckdb" in result.stdout
        assert "damaged" in result.stdout


def test_check_of_a_volume_with_both_superblocks_damaged(file_target):
    image = Image(file_target)
    image.damage_superblock(0)
    image.damage_superblock(1)
    assert run_cli("check", file_target.name).returncode == 1


def test_check_that_is_not_possible(tmp_path):
    assert "missing" in failed("check", str(tmp_path / "missing"))


def test_trim(new_target):
    target = new_target("loop-4096")
    assert re.fullmatch(r"Trimmed 2[345]\d\.\d MiB\n", succeeded("trim", target.name))


def test_errors_are_one_line(tmp_path, file_target):
    plain = tmp_path / "plain.bin"
    plain.write_bytes(b"text" * 10_000_000)
    assert "not a rawduck volume" in failed("info", str(plain))
    assert "not a rawduck volume" in failed("ls", str(plain))
    assert "force" in failed("format", file_target.name)
    assert "size" in failed("format", str(tmp_path / "new"))
    assert "missing" in failed("cp", str(tmp_path / "missing"), file_target.path("x"))
    assert "missing" in failed("rm", file_target.path("missing"))
    assert "nvme://" in failed("rm", str(plain))
    assert "the file keeps the space" in failed("trim", file_target.name)
    assert plain.exists()


def test_volume_in_use_by_a_writer(file_target):
    """It says what is on the volume. What needs the volume for itself is refused."""
    with rawduck.connect(file_target.path("x.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS v")
        listed = json.loads(run_cli("ls", "--json", file_target.name).stdout)
        assert "x.duckdb" in [file["name"] for file in listed]
        assert run_cli("info", file_target.name).returncode == 0
        assert "it is open for writing" in succeeded("check", file_target.name)
        assert "holds a lock" in failed("trim", file_target.name)


def test_unknown_command_and_missing_argument():
    for arguments in (["fly"], ["format"], ["cp", "one"]):
        result = run_cli(*arguments)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr


def test_the_demo_asks_for_its_tools_first(monkeypatch, tmp_path):
    """Before it downloads or formats anything."""

    def missing():
        raise rawduck.RawduckError("tpchgen-cli is not installed")

    monkeypatch.setattr(tpch, "generator", missing)
    monkeypatch.setattr(tpch, "fetched_source", lambda _: pytest.fail("it is downloaded"))
    with pytest.raises(rawduck.RawduckError, match="tpchgen-cli"):
        demo.run_demo(work_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def _counters(commands: int, latencies: dict[float, int], wal: int) -> dict:
    classes = {"database": 0, "wal": wal}
    counted = {"commands": commands, "bytes": wal, "errors": 0, "depth_mean": 1.0}
    return {**counted, "bytes_by_class": classes, "latencies": latencies}


def test_top_tells_of_the_interval_only():
    before = _counters(100, {10.0: 99, 5000.0: 1}, 4096)
    now = _counters(104, {10.0: 100, 20.0: 3, 5000.0: 1}, 4096 + 8192)
    found = rates(before, now, 2.0)
    assert found["commands_per_s"] == 2
    assert found["depth"] == pytest.approx(1.0)
    assert (found["latency_p50_us"], found["latency_p99_us"]) == (20.0, 20.0)
    assert found["bytes_by_class_per_s"] == {"database": 0, "wal": 4096}
    again = rates(now, _counters(2, {30.0: 2}, 10), 1.0)
    assert (again["commands_per_s"], again["latency_p50_us"]) == (2, 30.0)
    assert again["bytes_by_class_per_s"]["wal"] == 10
    idle = rates(now, now, 1.0)
    assert (idle["latency_p50_us"], idle["latency_p99_us"]) == (0.0, 0.0)


def test_directories_are_removed(file_target):
    volume = f"nvme://{file_target.name}"
    with rawduck.connect() as con:
        con.execute(f"COPY (SELECT i, i % 3 AS p FROM range(9) t(i)) TO '{volume}/a/b' (PARTITION_BY p)")
        con.execute(f"ATTACH '{volume}/a/x.duckdb' AS x; CREATE TABLE x.t (i int); DETACH x")
    full = run_cli("rm", f"{volume}/a")
    assert full.returncode == 2
    assert "not empty" in full.stderr
    assert "--recursive" in full.stderr
    moved = run_cli("mv", f"{volume}/a", f"{volume}/c")
    assert "only files are moved" in moved.stderr
    with rawduck.connect() as con:
        con.execute(f"CALL nvme_snapshot('{volume}/a/x.duckdb', 'm')")
    assert "Nothing was removed" in run_cli("rm", "-r", f"{volume}/a").stderr
    assert run_cli("rm", f"{volume}/a/x.duckdb@m").returncode == 0
    removed = run_cli("rm", "-r", "--json", f"{volume}/a")
    assert removed.returncode == 0, removed.stderr
    assert f"{volume}/a/b" in [row["removed"] for row in json.loads(removed.stdout)]
    assert json.loads(run_cli("ls", "--json", file_target.name).stdout) == []
    with rawduck.connect(f"{volume}/a") as con:
        con.execute("CREATE TABLE t (i int)")


def test_a_directory_with_wildcards_in_its_name_is_no_pattern(file_target):
    volume = f"nvme://{file_target.name}"
    with rawduck.connect() as con:
        for name in ("run[1]/x.csv", "run1", "run2/x.csv"):
            con.execute(f"COPY (SELECT 1) TO '{volume}/{name}'")
    removed = run_cli("rm", "-r", f"{volume}/run[1]")
    assert removed.returncode == 0, removed.stderr
    left = [row["name"] for row in json.loads(run_cli("ls", "--json", file_target.name).stdout)]
    assert left == ["run1", "run2/x.csv"]
    assert run_cli("rm", f"{volume}/run[1]").returncode == 0  # a pattern, where nothing has that name
    left = [row["name"] for row in json.loads(run_cli("ls", "--json", file_target.name).stdout)]
    assert left == ["run2/x.csv"]


def test_directories_of_a_stripe_are_removed(tmp_path):
    members = [str(tmp_path / name) for name in ("a.rd", "b.rd")]
    assert run_cli("format", *members, "--size", "32M").returncode == 0
    with rawduck.connect() as con:
        con.execute(f"COPY (SELECT 1) TO 'nvme://{members[0]}/d/x.csv'")
    removed = run_cli("rm", "-r", f"nvme://{members[1]}/d")
    assert removed.returncode == 0, removed.stderr
    assert json.loads(run_cli("ls", "--json", members[0]).stdout) == []


def test_a_path_into_a_volume_says_how_it_is_written(file_target, tmp_path):
    meant = f"write nvme://{file_target.name}/x.duckdb"
    with pytest.raises(duckdb.IOException, match=re.escape(meant)):
        rawduck.connect(f"{file_target.name}/x.duckdb")
    (tmp_path / "plain").write_text("plain")
    into = run_cli("cp", str(tmp_path / "plain"), f"{file_target.name}/x.duckdb")
    assert meant in into.stderr
    nowhere = run_cli("cp", str(tmp_path / "plain"), str(tmp_path / "no" / "there"))
    assert str(tmp_path / "no" / "there") in nowhere.stderr
    assert "nvme_copy-" not in nowhere.stderr


def test_python_runs_it_as_a_module():
    result = subprocess.run(
        [sys.executable, "-m", "rawduck", "--version"], capture_output=True, text=True, check=True
    )
    assert "rawduck" in result.stdout


def test_an_interrupt_is_said_wherever_it_comes():
    program = """
import sys
from rawduck import cli

@cli.app.command("waits")
def waits() -> None:
    raise KeyboardInterrupt

sys.argv = ["rawduck", "waits"]
cli.main()
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 130
    assert result.stderr == "rawduck: interrupted\n"
