"""What the `rawduck` command prints at terminals of two widths, for the transcripts in interface/golden.

`python test/sql/golden.py PROGRAM` writes them anew; look at the difference before it is committed.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent / "interface" / "golden"
WIDTHS = (80, 200)
COMMANDS = (
    "--help",
    "version",
    "format disk.rawduck --size 64M --label sales",
    "format disk.rawduck",
    "cp plain.txt nvme://{here}/disk.rawduck/a_name_that_is_long_but_not_uncommon_for_a_database.duckdb",
    "cp plain.txt disk.rawduck",
    "ls disk.rawduck",
    "ls --extents disk.rawduck",
    "info disk.rawduck",
    "check disk.rawduck",
    "rm disk.rawduck missing.duckdb",
    "rm nvme://{here}/disk.rawduck/missing.duckdb",
    "rm nvme://{here}/disk.rawduck/a_name_that_is_long_but_not_uncommon_for_a_database.duckdb",
    "trim disk.rawduck",
    "send nvme://{here}/disk.rawduck/sales.duckdb@monday",
    "send nvme://{here}/disk.rawduck/sales.duckdb@monday -o monday",
    "receive nvme://{here}/disk.rawduck/sales.duckdb -i plain.txt",
    "receive --token nvme://{here}/disk.rawduck/sales.duckdb",
    "cp plain.txt nvme://{here}/disk.rawduck/plain.txt",
    "snapshot nvme://{here}/disk.rawduck/plain.txt@monday",
    "send nvme://{here}/disk.rawduck/plain.txt@monday -o monday",
    "receive --verify -i monday",
    "receive back.txt -i monday",
    "grow disk.rawduck",
    "grow disk.rawduck --size 96M",
    "grow disk.rawduck --size 64M",
    "ls missing.rawduck",
    "cp plain.txt nvme://missing.rawduck/plain.txt",
    "sl",
)
#: What differs from one machine or run to the next, and what stands for it, of the same length.
CHANGING = (
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "01234567-89ab-cdef-0123-456789abcdef"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-01-31 12:00:00"),
    (r"rawduck-golden-\w{8}", "rawduck-golden-12345678"),
    (r"(mounted in +).*", r"\g<1>a few ms"),
    (r"(buffer alignment +).*", r"\g<1>512 bytes"),
    (r"^(engine +).*", r"\g<1>io_uring (auto: the kernel offers it)"),
    (r"( in) [\d.]+ s$", r"\g<1> 0.123 s"),
)


def at_terminal(command: list[str], columns: int, folder: str) -> str:
    """What is printed at a terminal that has no colours, with the exit code as the last line."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "50", "TERM": "dumb"}
    child = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    printed = b""
    try:
        while piece := os.read(ours, 65536):
            printed += piece
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    text = printed.decode().replace("\r\n", "\n").split("\r")[-1]
    return f"{text}exit code {child.wait(timeout=60)}\n"


def transcript(program: str, columns: int) -> str:
    with tempfile.TemporaryDirectory(prefix="rawduck-golden-", dir="/tmp") as folder:
        (Path(folder) / "plain.txt").write_bytes(b"plain" * 1000)
        text = "".join(
            f"$ rawduck {command}\n{at_terminal([program, *command.split()], columns, folder)}\n"
            for command in (command.format(here=folder) for command in COMMANDS)
        )
    for pattern, constant in CHANGING:
        text = re.sub(pattern, constant, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def golden(columns: int) -> Path:
    return FOLDER / f"{columns}.txt"


if __name__ == "__main__":
    for width in WIDTHS:
        golden(width).write_text(transcript(sys.argv[1], width))
