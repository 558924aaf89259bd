"""`make gpu-check`: everything that only a GPU can show, in one call of less than ten minutes.

Each part runs in a process of its own with a time limit, and says what it found or why it could not; the
others run all the same. The last part is a table of the bars, met or not. `--rehearse` runs all of it with
the checker of driver calls in place of a GPU and next to no data: that shows that the parts run, and no more.

Exits with 0 where every part passed and every bar was met, with 1 otherwise, and with 2 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PARTS = Path(__file__).resolve().parent / "parts.py"
CHECKER = ROOT / "build" / "host" / "libcuda_checker.so"
LIBRARIES = ("torch", "cupy", "jax")
LINES_OF_A_FAILURE = 25


@dataclass
class Outcome:
    part: str
    state: str  #: "passed", "failed" or "not run"
    text: str
    seconds: float = 0
    result: dict[str, Any] = field(default_factory=dict)


def run_part(part: str, command: list[str], limit_s: int, environment: dict[str, str]) -> Outcome:
    """The last line that a process prints as JSON is its result."""
    start = time.monotonic()
    print(f"\n== {part}", flush=True)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=limit_s, env=environment, cwd=ROOT
        )
        output, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        output = "".join(
            text.decode(errors="replace") if isinstance(text, bytes) else text or ""
            for text in (error.stdout, error.stderr)
        )
        output, status = f"{output}\nended after {limit_s} s", -1
    lines = output.strip().splitlines()
    result = next((json.loads(line) for line in reversed(lines) if line.startswith('{"')), {})
    state = "passed" if status == 0 else "failed"
    print("\n".join(lines[-LINES_OF_A_FAILURE:] if status else lines[-2:]), flush=True)
    reason = "" if status == 0 else f"exit status {status}: {lines[-1] if lines else 'no output'}"
    return Outcome(part, state, reason, time.monotonic() - start, result)


class Check:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments, self.folder = arguments, folder
        self.environment = {**os.environ, "RAWDUCK_GPU": str(arguments.device), "PYTHONFAULTHANDLER": "1"}
        # All modules are loaded at once: how long a first launch takes must not be in a measurement.
        self.environment["CUDA_MODULE_LOADING"] = "EAGER"
        self.environment["RAWDUCK_TEST_FUNCTIONS"] = "1"
        self.environment.pop("RAWDUCK_TEST_LIBCUDA", None)
        if arguments.rehearse:
            self.environment["RAWDUCK_TEST_LIBCUDA"] = str(CHECKER)
        self.outcomes: list[Outcome] = []

    def part(self, name: str, *arguments: str, limit_s: int = 60) -> Outcome:
        command = [sys.executable, str(PARTS), name, *arguments]
        outcome = run_part(" ".join([name, *arguments[:1]]), command, limit_s, self.environment)
        self.outcomes.append(outcome)
        return outcome

    def tests(self) -> None:
        """The tests of tables on the GPU, on this one."""
        environment = {**self.environment, "RAWDUCK_TEST_GPU": str(self.arguments.device)}
        command = [sys.executable, "-m", "pytest", "test/sql/gpu", "-q", "-rf", "--numprocesses=4"]
        # Not the folder of those who may be running this.
        command += [
            f"--basetemp={self.folder / 'pytest'}",
            "--maxfail=20",
            "-p",
            "no:cacheprovider",
            "--ignore=test/sql/gpu/test_older_files.py",
        ]
        if self.arguments.rehearse:
            command += ["-k", "test_smaller_blocks or test_parameters"]
        self.outcomes.append(run_part("tests", command, 240, environment))

    def libraries(self) -> None:
        for library in LIBRARIES:
            if self.arguments.rehearse or importlib.util.find_spec(library) is None:
                why = "a rehearsal has no GPU" if self.arguments.rehearse else "not installed"
                self.outcomes.append(Outcome(f"library {library}", "not run", why))
            else:
                self.part("library", library, limit_s=90)

    def sanitizer(self) -> None:
        program = shutil.which("compute-sanitizer")
        for tool in ("memcheck", "racecheck"):
            if program is None or self.arguments.rehearse:
                why = "compute-sanitizer is not installed" if program is None else "a rehearsal has no GPU"
                self.outcomes.append(Outcome(f"compute-sanitizer {tool}", "not run", why))
                continue
            command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, str(PARTS), "values"]
            self.outcomes.append(run_part(f"compute-sanitizer {tool}", command, 90, self.environment))

    def run(self) -> int:
        opened = self.part("open", limit_s=60)
        if opened.state != "passed":
            print("\ngpu-check: no GPU can be used; the reason stands above, and nothing else was run")
            return 2
        self.part("values", limit_s=90)
        self.tests()
        self.libraries()
        self.sanitizer()
        rate = self.part("copy-rate", "1" if self.arguments.rehearse else "256", limit_s=60)
        scale = "0.01" if self.arguments.rehearse else str(self.arguments.scale)
        bars = self.part("bars", scale, str(self.folder), limit_s=200)
        print(f"\n{opened.result.get('device', '')}")
        if self.arguments.rehearse:
            print("A rehearsal: every figure below is of the checker, not of a GPU.")
        failed = print_outcomes(self.outcomes)
        missed = print_bars(rate.result, bars.result)
        return 1 if failed or missed else 0


def print_outcomes(outcomes: list[Outcome]) -> int:
    for outcome in outcomes:
        print(f"  {outcome.part:28} {outcome.state:8} {outcome.seconds:6.1f} s  {outcome.text}")
    return sum(outcome.state == "failed" for outcome in outcomes)


def print_bars(rate: dict[str, Any], bars: dict[str, Any]) -> int:
    """Each bar: what was measured, what is asked for, and whether it is met."""
    copy = rate.get("bytes_per_s")
    rows = []
    for name in ("q6", "numbers"):
        found = bars.get(name, {})
        compressed = found.get("copied_bytes_per_s")
        share = compressed / copy if compressed and copy else None
        rows.append((f"{name}: compressed bytes, of the copy rate", share, 0.9, True))
        decoded = found.get("decoded_bytes_per_s")
        gigabytes = decoded / 1e9 if decoded else None
        rows.append((f"{name}: decoded, GB/s, where copies are >= 30", gigabytes, 125, True))
        rows.append((f"{name}: CPU cores", found.get("cores"), 2, False))
        rows.append((f"{name}: times DuckDB's .torch() and .cuda()", found.get("times_torch"), 10, True))
        equal = found.get("equal")
        rows.append((f"{name}: values equal", None if equal is None else int(equal), 1, True))
    print(f"\n  {'pinned copies, GB/s':44} {f'{copy / 1e9:.2f}' if copy else 'not measured'}")
    missed = 0
    for text, value, bar, is_least in rows:
        is_met = value is not None and (value >= bar if is_least else value <= bar)
        missed += not is_met
        measured = "not measured" if value is None else f"{value:.2f}"
        sign = ">=" if is_least else "<="
        print(f"  {text:44} {measured:>12}  {sign} {bar:<6} {'met' if is_met else 'NOT MET'}")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description="Everything that only a GPU can show")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--scale", type=float, default=5, help="TPC-H scale factor of the bars' table")
    parser.add_argument("--rehearse", action="store_true", help="with the checker in place of a GPU")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rawduck-gpu-check-") as folder:
        sys.exit(Check(arguments, Path(folder)).run())


if __name__ == "__main__":
    main()
