"""Runs sqllogictests twice with the stock wheel: on ordinary files, and on a rawduck volume.

    python test/sqllogic/runner --source <tree> <folder or file>...

Every test is a process of its own, two at a time, with a time limit. What the volume fails and ordinary files
pass is a failure; the exit code is then 1. The last line counts: passed, failed, skipped.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MODES = ("stock", "volume")
VOLUME_BYTES = "4G"
WORKERS = 2


@dataclass
class Outcome:
    status: str  # passed, failed or skipped
    reason: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="+", type=Path, help="files, or folders that are searched for .test")
    parser.add_argument("--source", type=Path, default=Path(), help="what paths in the tests are relative to")
    parser.add_argument("--slow", action="store_true", help="also .test_slow")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one test")
    parser.add_argument("--only", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help="write all outcomes to this JSON file")
    arguments = parser.parse_args()
    if arguments.only:
        return run_alone(arguments.tests[0], arguments.source, arguments.only)
    files = find(arguments.tests, arguments.slow)
    if not files:
        parser.error(f"no tests in {', '.join(map(str, arguments.tests))}")
    outcomes = run_all(files, arguments)
    if arguments.report:
        text = {str(file): {mode: vars(outcomes[file, mode]) for mode in MODES} for file in files}
        arguments.report.write_text(json.dumps(text, indent=1) + "\n")
    return summarize(files, outcomes, arguments.source)


def find(paths: list[Path], slow: bool) -> list[Path]:
    suffixes = (".test", ".test_slow") if slow else (".test",)
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.test*"))]
    return sorted(file.resolve() for file in files if file.suffix in suffixes)


def run_all(files: list[Path], arguments: argparse.Namespace) -> dict[tuple[Path, str], Outcome]:
    outcomes: dict[tuple[Path, str], Outcome] = {}

    def run(work: tuple[Path, str]) -> None:
        outcomes[work] = run_process(*work, arguments)
        outcome = outcomes[work]
        if outcome.status == "failed":
            print(f"{work[1]:6} {name_of(work[0], arguments.source)}: {outcome.reason}", flush=True)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(run, [(file, mode) for file in files for mode in MODES]))
    return outcomes


def run_process(file: Path, mode: str, arguments: argparse.Namespace) -> Outcome:
    """One test in a process of its own, and in a process group that goes with it."""
    own = [
        sys.executable,
        str(Path(__file__).parent),
        "--only",
        mode,
        "--source",
        str(arguments.source.resolve()),
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    child = subprocess.Popen([*own, str(file)], text=True, errors="replace", start_new_session=True, **pipes)
    try:
        output, errors = child.communicate(timeout=arguments.timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return Outcome("failed", f"longer than {arguments.timeout} s")
    try:
        return Outcome(**json.loads(output.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        return Outcome("failed", f"the process ended with {child.returncode}: {errors.strip()[-300:]}")


def run_alone(file: Path, source: Path, mode: str) -> int:
    """In the process of one test: prints the outcome."""
    import execute
    import rawduck
    from rawduck.volumes import format_volume

    # Beside the build: what is measured in CI must be a file system with direct I/O.
    scratch_parent = Path(os.environ.get("RAWDUCK_SQLLOGIC_DIR", "build")).resolve()
    scratch_parent.mkdir(parents=True, exist_ok=True)
    outcome = Outcome("passed")
    with tempfile.TemporaryDirectory(
        prefix="sqllogic-", dir=scratch_parent, ignore_cleanup_errors=True
    ) as scratch:
        folder, extension = f"{scratch}/test", ""
        Path(folder).mkdir()
        if mode == "volume":
            volume = f"{scratch}/volume.rawduck"
            with rawduck.connect() as connection:
                format_volume(connection, volume, size=VOLUME_BYTES)
            folder, extension = f"nvme://{volume}/test", str(rawduck.extension_path())
        os.chdir(source)
        try:
            execute.Execution(folder, source, Path(scratch), extension).run(file)
        except StopIteration:
            pass  # halt
        except execute.Skip as skip:
            outcome = Outcome("skipped", str(skip))
        except Exception as problem:
            outcome = Outcome(
                "failed", f"{'' if isinstance(problem, execute.Failure) else repr(problem)}{problem}"
            )
    print(json.dumps(vars(outcome)), flush=True)
    return 0


def name_of(file: Path, source: Path) -> str:
    source = source.resolve()
    return str(file.relative_to(source)) if file.is_relative_to(source) else file.name


def summarize(files: list[Path], outcomes: dict[tuple[Path, str], Outcome], source: Path) -> int:
    print()
    reasons: collections.Counter[str] = collections.Counter()
    for file in files:
        if outcomes[file, "volume"].status == "skipped":
            reasons[re.sub(r"^line \d+: ", "", outcomes[file, "volume"].reason)] += 1
    for reason, count in reasons.most_common():
        print(f"skipped {count:4}: {reason}")
    groups = collections.defaultdict(list)
    for file in files:
        groups[name_of(file.parent, source)].append(file)
    print(
        f"\n| {'folder':40} | stock passed, failed, skipped | volume passed, failed, skipped |\n|---|---|---|"
    )
    for folder, members in [*sorted(groups.items()), ("all", files)]:
        cells = [counts([outcomes[file, mode] for file in members]) for mode in MODES]
        print(f"| {folder:40} | {cells[0]} | {cells[1]} |")
    ours = [
        f
        for f in files
        if outcomes[f, "volume"].status == "failed" and outcomes[f, "stock"].status != "failed"
    ]
    print(f"\nFailed on the volume and not on files: {len(ours)}")
    for file in ours:
        print(f"  {name_of(file, source)}: {outcomes[file, 'volume'].reason}")
    alike = len(files) - len(ours)
    skipped = sum(outcomes[file, "volume"].status == "skipped" for file in files)
    print(f"{alike - skipped} passed, {len(ours)} failed, {skipped} skipped")
    return 1 if ours else 0


def counts(outcomes: list[Outcome]) -> str:
    count = collections.Counter(outcome.status for outcome in outcomes)
    return f"{count['passed']}, {count['failed']}, {count['skipped']}"


if __name__ == "__main__":
    start = time.monotonic()
    status = main()
    if "--only" not in sys.argv:
        print(f"({time.monotonic() - start:.0f} s)", file=sys.stderr)
    sys.exit(status)
