"""Our own sqllogictests, on ordinary files and on a volume, by the runner that also takes DuckDB's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RUNNER = ROOT / "test" / "sqllogic" / "runner"
TESTS = sorted((ROOT / "test" / "sqllogic").glob("*.test"))


def run(test: Path, mode: str) -> dict[str, str]:
    command = [sys.executable, str(RUNNER), "--only", mode, str(test)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("mode", ["stock", "volume"])
@pytest.mark.parametrize("test", TESTS, ids=lambda path: path.stem)
def test_passes(test, mode):
    assert run(test, mode) == {"status": "passed", "reason": ""}


def test_the_test_of_duckdbs_own_build():
    """Which has the extension loaded, as in the mode that uses volumes."""
    assert run(ROOT / "test/sqllogic/extension/rawduck.test", "volume") == {"status": "passed", "reason": ""}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("query I\nSELECT 1\n----\n2", 1),
        ("query II\nSELECT 1, 'a'\n----\n1\tb", 1),
        ("query I\nSELECT 1 WHERE false\n----\n1", 1),
        ("query I\nSELECT 1\n----\n", 1),
        ("query I\nSELECT 1\n----\n1 values hashing to 00000000000000000000000000000000", 1),
        ("query I\nSELECT missing", 1),
        ("statement ok\nSELECT missing", 1),
        ("statement error\nSELECT 1", 1),
        ("statement error\nSELECT missing\n----\nanother message", 1),
        ("query I nosort a\nSELECT 1\n----\n\nquery I nosort a\nSELECT 2\n----\n", 5),
        ("loop i 0 3\n\nquery I\nSELECT {i} < 2\n----\ntrue\n\nendloop", 3),
        ("concurrentloop i 0 3\n\nquery I\nSELECT {i} < 2\n----\ntrue\n\nendloop", 3),
        (
            "load {TEST_DIR}/x\n\nstatement ok\nCREATE TABLE t (i INT)\n\n"
            "restart\n\nquery I\nFROM t\n----\n1",
            8,
        ),
        ("skipif mysql\nquery I\nSELECT 1\n----\n2", 2),
    ],
)
def test_runner_notices(tmp_path, text, line):
    test = tmp_path / "wrong.test"
    test.write_text(text + "\n")
    outcome = run(test, "volume")
    assert outcome["status"] == "failed"
    assert outcome["reason"].startswith(f"line {line}: ")


@pytest.mark.parametrize(
    "text",
    [
        "require no_such_extension",
        "require vector_size 4096",
        "require-env NO_SUCH_VARIABLE",
        "an unknown command",
    ],
)
def test_runner_says_why_it_skips(tmp_path, text):
    test = tmp_path / "skipped.test"
    test.write_text(f"{text}\n\nquery I\nSELECT 1\n----\n2\n")
    outcome = run(test, "volume")
    assert outcome["status"] == "skipped"
    assert outcome["reason"].startswith("line 1: ")
