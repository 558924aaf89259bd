"""What scripts use of the `rawduck` command: JSON, CSV, completion, versions, progress."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rawduck
from support import run_cli

ROOT = Path(__file__).resolve().parents[3]
COMMAND = str(Path(sys.executable).with_name("rawduck"))
LISTINGS = ("devices", "ls", "check")


@pytest.fixture
def arguments(file_target, tmp_path) -> dict[str, list[str]]:
    """Of every command that prints JSON, in an order in which they can be run."""
    source = tmp_path / "a,b.txt"
    source.write_text("text")
    new, target = str(tmp_path / "new.rawduck"), file_target.name
    return {
        "format": [new, "--size", "32M"],
        "grow": [new, "--size", "48M"],
        "cp": [str(source), f"nvme://{target}/"],
        "devices": [],
        "info": [target],
        "ls": [target],
        "check": [target],
        "defragment": [file_target.path("a,b.txt")],
        "snapshot": [file_target.path("a,b.txt@monday")],
        "clone": [file_target.path("a,b.txt@monday"), file_target.path("e.txt")],
        "mv": [file_target.path("a,b.txt"), file_target.path("c,d.txt")],
        "rm": [file_target.path("c,d.txt")],
        "trim": [target, "--deallocate"],
        "version": [],
    }


def documented() -> dict[str, tuple[str, list[str]]]:
    """Of each command in docs/JSON.md: a list or an object, and the names that its fields come from."""
    rows = re.findall(
        r"^\| `(\w+)` \| an? (list|object) \| ([^|]*) \|", (ROOT / "docs/JSON.md").read_text(), re.M
    )
    return {command: (kind, re.findall(r"`(\w+)`", fields)) for command, kind, fields in rows}


def test_json_is_as_documented(arguments, con):
    def columns(function: str) -> list[str]:
        reference = (ROOT / "docs/REFERENCE.md").read_text()
        section = reference[reference.index(f"#### `{function}(") :].split("\n#### ")[0]
        return re.findall(r"^\| `(\w+)` \|", section, re.M)

    assert list(documented()) == sorted(arguments, key=list(documented()).index)
    for command, rest in arguments.items():
        done = run_cli(command, *rest, "--json")
        assert done.returncode == 0, done.stderr
        value = json.loads(done.stdout)
        kind, sources = documented()[command]
        assert isinstance(value, list) == (kind == "list")
        if command == "version":
            assert list(value) == sources
            continue
        expected = columns(sources[0]) + (["fdp"] if command == "info" else [])
        row = value[0] if kind == "list" else value
        assert [name for name in expected if name in row] == list(row), command


def csv_and_json(command: str, *rest: str) -> tuple[list[dict], list[dict]]:
    """The rows of both listings. What JSON has is written as CSV has it."""
    rows = list(csv.DictReader(io.StringIO(run_cli(command, *rest, "--csv").stdout)))
    found = json.loads(run_cli(command, *rest, "--json").stdout)
    for row in found:
        for name, value in row.items():
            row[name] = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return rows, found


def test_csv(arguments, file_target):
    run_cli("cp", *arguments["cp"])
    for command in LISTINGS:
        # Other tests make and remove block devices of this machine between the two listings.
        for _ in range(10):
            rows, found = csv_and_json(command, *arguments[command])
            if rows == found:
                break
        assert rows == found
        assert not rows or list(rows[0]) == list(found[0])
    run_cli("mv", *arguments["mv"])
    run_cli("rm", *arguments["rm"])
    assert run_cli("ls", file_target.name, "--csv").stdout.startswith("name,kind,size,")
    assert "one of the two" in run_cli("ls", file_target.name, "--csv", "--json").stderr


def test_version():
    assert run_cli("--version").stdout == run_cli("version").stdout
    assert run_cli("--version").stdout.startswith(f"rawduck {rawduck.__version__}, DuckDB 2.0.0")


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "rawduck for", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "rawduck for"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "rawduck for", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_completion(shell, variables):
    environment = {**os.environ, **variables, "_RAWDUCK_COMPLETE": f"complete_{shell}"}
    done = subprocess.run([COMMAND], env=environment, capture_output=True, text=True, check=False)
    assert "format" in done.stdout
    assert "trim" not in done.stdout
    variables = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    shown = subprocess.run(
        [COMMAND, "--show-completion", shell], env=variables, capture_output=True, text=True, check=False
    )
    assert f"complete_{shell}" in shown.stdout


def test_progress_without_a_terminal(file_target, tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(100 * 1024**2)
    code = (
        "import sys; from rawduck.commands import copy, progress\n"
        "progress._LINE_SECONDS = 0; progress._POLL_SECONDS = 0.001\n"
        "copy.copy(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, str(source), file_target.path("large")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Copied 100.0 MiB")
    assert re.match(r"cp: [\d.]+ [KM]iB of 100\.0 MiB\n", done.stderr)


def test_the_package_says_that_it_has_types():
    assert Path(rawduck.__file__).with_name("py.typed").exists()
