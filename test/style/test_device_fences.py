"""What keeps memory in order for devices on aarch64: an emulator orders it as x86-64, and finds nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = """#include "io/engine/vfio/queue/device_fences.hpp"
extern "C" void use() {
    rawduck::FenceBeforeDoorbell();
    rawduck::FenceBehindPhase();
    rawduck::FenceBetweenWriteAndRead();
}
"""


@pytest.mark.skipif(
    not shutil.which("clang++"), reason="clang++ compiles for other processors, and is missing"
)
def test_fences_on_aarch64_reach_devices(tmp_path):
    (tmp_path / "atomic").touch()  # for other processors only: there may be no library for this one
    command = [
        "clang++",
        "--target=aarch64-linux-gnu",
        "-std=c++17",
        "-O2",
        "-S",
        "-x",
        "c++",
        "-",
        "-o",
        "-",
    ]
    command += ["-I", str(REPOSITORY / "src"), "-isystem", str(tmp_path)]
    made = subprocess.run(command, input=SOURCE, text=True, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    assert re.findall(r"\bdmb\s+(\w+)", made.stdout) == ["oshst", "oshld", "osh"]
