"""Formatters and linters have nothing to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
CPP_FILES = sorted(
    str(p) for folder in ("src", "ceph", "test", "bench") for p in (ROOT / folder).rglob("*.[ch]pp")
)


def run(*command: str) -> None:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stdout[-4000:]}{result.stderr[-4000:]}\nrun: make format"


def test_clang_format():
    run(str(TOOLS / "clang-format"), "--dry-run", "--Werror", *CPP_FILES)


def test_ruff_check():
    run(str(TOOLS / "ruff"), "check", "--no-cache", ".")


def test_ruff_format():
    run(str(TOOLS / "ruff"), "format", "--no-cache", "--check", ".")


def test_shell_syntax():
    for script in [*ROOT.glob("scripts/*.sh"), ROOT / ".ci/run"]:
        run("bash", "-n", str(script))
