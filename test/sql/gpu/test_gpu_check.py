"""`make gpu-check` runs to its end: without a GPU it says why, and a rehearsal has every part."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cuda_memory
import pytest

RUN = Path(__file__).resolve().parents[2] / "gpu_check" / "run.py"


def run(*arguments, **environment):
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **environment}
    )


def test_without_a_gpu_it_says_so():
    done = run(CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no GPU" in done.stdout
    assert "nothing else was run" in done.stdout


def test_a_rehearsal_runs_every_part():
    if not cuda_memory.CHECKER.exists():
        pytest.skip("scripts/run_tests.py sql builds the checker of driver calls")
    done = run("--rehearse")
    assert done.returncode == 1, done.stdout + done.stderr  # bars cannot be met
    assert "failed" not in done.stdout.replace("0 failed", ""), done.stdout
    for part in ("open", "values", "tests", "copy-rate", "bars"):
        assert any(line.split()[:1] == [part] and "passed" in line for line in done.stdout.splitlines()), part
    assert done.stdout.count("values equal") == 2
    assert done.stdout.count("NOT MET") >= 4
    assert "of the checker, not of a GPU" in done.stdout
