"""fio as a yardstick: the same amounts, read from the same target."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from typing import Any

from rawduck.bench.core.case import Measurement
from rawduck.errors import RawduckError

_LOOPS = 16
_BLOCK_BYTES = 256 * 1024
_ALL: dict[str, Any] = {"ioengine": "io_uring", "direct": 1}


@dataclass(frozen=True)
class Job:
    """Reads that fio does; `settings` are options of it."""

    #: Bytes from which to read, of which one loop reads all unless `reads` says how many places.
    size: int
    settings: dict[str, Any]
    reads: int = 0


def sequential(size: int) -> Job:
    settings = {"rw": "read", "bs": _BLOCK_BYTES, "iodepth": 32, "loops": _LOOPS}
    return Job(size, _ALL | settings)


def random(size: int, block_bytes: int, reads: int, threads: int) -> Job:
    """Each thread one read after the other."""
    settings = {
        "rw": "randread", "bs": block_bytes, "iodepth": 1, "numjobs": threads, "thread": 1,
        "group_reporting": 1, "norandommap": 1, "number_ios": reads // threads,
    }  # fmt: skip
    return Job(size, _ALL | settings, reads)


def measure(target: str, offset: int, job: Job, time_metric: str) -> Measurement:
    """Milliseconds of one loop, or of one random read. Reads only; a namespace by its block device."""
    path = re.sub(r"^/dev/ng(\d+n\d+)$", r"/dev/nvme\1", target)
    options = [f"--{name}={value}" for name, value in job.settings.items()]
    where = [f"--filename={path}", f"--offset={offset}", f"--size={job.size}"]
    command = ["fio", "--name=rawduck", *where, "--readonly", *options, "--output-format=json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RawduckError(f"fio failed: {(result.stderr or result.stdout).strip()}")
    # Some versions write notes before the JSON.
    read = json.loads(result.stdout[result.stdout.index("{") :])["jobs"][0]["read"]
    if job.reads:
        return Measurement({time_metric: 1000 / read["iops"]})
    if job.size == _BLOCK_BYTES:
        return Measurement(
            {time_metric: read["lat_ns"]["mean"] / 1e6}
        )  # its clock for the whole ticks too slowly
    return Measurement({time_metric: read["runtime"] / _LOOPS})
