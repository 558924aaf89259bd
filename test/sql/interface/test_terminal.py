"""What the `rawduck` command does at a terminal, and what it makes of names that would command one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import rawduck
from rawduck.commands.progress import run_interruptible
from support import at_terminal, file_names, run_cli

COMMAND = str(Path(sys.executable).with_name("rawduck"))
ESCAPES = "red\x1b[31m\nline\u202etxt.db"
ESCAPED = r"red\x1b[31m\nline\u202etxt.db"


def test_names_do_not_command_the_terminal(target, con, tmp_path):
    con.execute("SET VARIABLE path = ?", [target.path(ESCAPES)])
    con.execute("COPY (SELECT 1 AS v) TO (getvariable('path')) (FORMAT csv)")
    if target.kind.startswith("memory"):
        assert file_names(con, target) == [ESCAPES]  # another process sees nothing of it
        return
    outputs = [
        run_cli("ls", "--extents", target.name).stdout,
        run_cli("cp", target.path(ESCAPES), str(tmp_path) + "/").stdout,
        run_cli("cp", target.path(ESCAPES + "2"), str(tmp_path)).stderr,
    ]
    assert ESCAPED in outputs[0]
    assert ESCAPED in outputs[1]
    for output in outputs:
        assert "\x1b" not in output
        assert len(output.splitlines()) == len(output.split("\n")) - 1
        assert "\u202e" not in output
    assert [row["name"] for row in json.loads(run_cli("ls", "--json", target.name).stdout)] == [ESCAPES]


@pytest.mark.parametrize("columns", [80, 200])
def test_devices_in_any_terminal(columns):
    code, printed = at_terminal("devices", columns=columns)
    assert code == 0
    heading = next(line for line in printed.splitlines() if line.startswith("device"))
    assert heading.split()[:3] == ["device", "model", "capacity"]
    assert ("write cache" in heading) == (columns == 200)
    assert ("wider terminal" in printed) == (columns == 80)


def test_an_interrupt_while_modules_are_loaded():
    code = """
import importlib.abc, os, signal, sys
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "duckdb":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["rawduck", "version"]
from rawduck.start import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "rawduck: interrupted\n")


def test_little_is_loaded_before_interrupts_are_answered():
    code = "import sys; import rawduck.start; print(*sys.modules)"
    variables = {**os.environ, "PYTHONPATH": str(Path(rawduck.__file__).parents[1])}
    command = [sys.executable, "-S", "-c", code]  # without what the environment loads itself
    loaded = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()
    assert "rawduck.start" in loaded
    assert not {"duckdb", "rich", "typer", "typing", "re"} & set(loaded)


@pytest.mark.parametrize("arguments", [("ls", "--json"), ("ls",), ("check",), ("check", "--json")])
def test_nobody_reads_to_the_end(file_target, arguments):
    """The exit code is that of the command, and nothing is said about the pipe."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [COMMAND, *arguments, file_target.name]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_trim_of_a_regular_file(file_target):
    refused = run_cli("trim", file_target.name)
    assert refused.returncode == 2
    assert "--deallocate" in refused.stderr
    before = os.stat(file_target.name).st_blocks
    assert run_cli("trim", "--deallocate", file_target.name).stdout.startswith("Trimmed 2")
    assert os.stat(file_target.name).st_blocks < before


class SlowToBegin:
    """A connection whose statement forgets what comes before it has begun, as DuckDB's do."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()
        self.ended = False

    def execute(self, *_):
        time.sleep(0.3)
        self._interrupted.clear()
        self.ended = self._interrupted.wait(10)
        raise RuntimeError("Query interrupted")

    def interrupt(self) -> None:
        self._interrupted.set()


def test_ctrl_c_before_a_statement_has_begun():
    connection = SlowToBegin()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(connection, "", [], interrupt)
    assert connection.ended


def run_patched(patch: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """The command after some Python."""
    before, after = "import os, signal, sys\nfrom rawduck import cli, volumes\n", "\ncli.main()"
    code = f"{before}{patch}\nsys.argv[0] = 'rawduck'{after}"
    command = [sys.executable, "-c", code, *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


INTERRUPTED_FORMAT = """
format_volume = volumes.format_volume
def interrupted(*arguments, **options):
    row = format_volume(*arguments, **options)
    os.kill(os.getpid(), signal.SIGINT)
    return row
volumes.format_volume = interrupted
"""


def test_what_was_done_at_once_is_said_before_the_interrupt(tmp_path):
    path = str(tmp_path / "x.rawduck")
    done = run_patched(INTERRUPTED_FORMAT, "format", path, "--size", "32M")
    assert (done.returncode, done.stderr) == (130, "rawduck: interrupted\n")
    assert done.stdout.startswith(f"Formatted {path}")
    assert run_cli("info", path).returncode == 0


INTERRUPTED_QUERY = """
from rawduck import render
rows = render.rows
def interrupted(*arguments):
    done = rows(*arguments)
    os.kill(os.getpid(), signal.SIGINT)
    return done
render.rows = interrupted
"""


@pytest.mark.parametrize("command", ["rm", "mv"])
def test_the_file_at_which_an_interrupt_came_is_said_to_be_done(file_target, con, command):
    for name in "ab":
        con.execute(f"COPY (SELECT 1) TO '{file_target.path(name)}' (FORMAT csv)")
    paths = [file_target.path("[ab]"), *([file_target.path("d/")] if command == "mv" else [])]
    done = run_patched(INTERRUPTED_QUERY, command, *paths, "--json")
    assert (done.returncode, done.stderr) == (130, "rawduck: interrupted\n")
    assert [next(iter(row.values())) for row in json.loads(done.stdout)] == [file_target.path("a")]
    assert file_names(con, file_target) == ["b", *(["d/a"] if command == "mv" else [])]


def test_who_ignores_interrupts_goes_on_doing_so(tmp_path):
    """As a job of a script in the background."""
    patch = "signal.signal(signal.SIGINT, signal.SIG_IGN)" + INTERRUPTED_FORMAT
    done = run_patched(patch, "format", str(tmp_path / "x.rawduck"), "--size", "32M")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_nobody_has_thought_of_is_no_damage(file_target):
    """The exit code 1 of `check` says that a volume is damaged."""
    done = run_patched("cli.rawduck.connect = lambda: 1 / 0", "check", file_target.name)
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr


def test_names_where_the_locale_has_no_such_characters(file_target, con):
    con.execute(f"COPY (SELECT 1) TO '{file_target.path('grün.csv')}'")
    done = run_patched("", "ls", file_target.name, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"gr\xfcn.csv" in done.stdout
    assert run_patched("", "top", file_target.name, "-n", "1", PYTHONIOENCODING="ascii").returncode == 0
