"""fio as a yardstick: the same amounts, read from the same target."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

from rawduck.bench.experiment import Measurement
from rawduck.errors import RawduckError

#: Bytes that a job reads at once, by the name of the case.
JOBS = {"block": 256 * 1024, "run": 32 * 1024**2}

_LOOPS = 16
_BLOCK_BYTES = 256 * 1024
SETTINGS: dict[str, Any] = {
    "ioengine": "io_uring",
    "iodepth": 32,
    "bs": _BLOCK_BYTES,
    "direct": 1,
    "loops": _LOOPS,
}


def measure(target: str, case: str, time_metric: str) -> Measurement:
    """Milliseconds of one loop. Reads only; a namespace by its block device."""
    path = re.sub(r"^/dev/ng(\d+n\d+)$", r"/dev/nvme\1", target)
    options = [f"--{name}={value}" for name, value in SETTINGS.items()]
    command = [
        "fio",
        "--name=rawduck",
        f"--filename={path}",
        f"--size={JOBS[case]}",
        "--rw=read",
        "--readonly",
    ]
    result = subprocess.run(
        [*command, *options, "--output-format=json"], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise RawduckError(f"fio failed: {(result.stderr or result.stdout).strip()}")
    # Some versions write notes before the JSON.
    read = json.loads(result.stdout[result.stdout.index("{") :])["jobs"][0]["read"]
    if JOBS[case] == _BLOCK_BYTES:
        return Measurement(
            {time_metric: read["lat_ns"]["mean"] / 1e6}
        )  # its clock for the whole ticks too slowly
    return Measurement({time_metric: read["runtime"] / _LOOPS})
