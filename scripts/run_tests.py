"""Runs the test stages and sums them up in one closing line.

    run_tests.py usual               every stage but the long ones, without their long tests
    run_tests.py all                 with these
    run_tests.py all unit odr        and some of the long stages
    run_tests.py unit sql            some of them
    run_tests.py sql -- -k wal       what follows -- goes to pytest

Exits with 0 when nothing failed. Needs nothing but Python: the stages bring their own tools.
"""

from __future__ import annotations

import base64
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
REPORTS = BUILD / "reports"
UNIT_TESTS = "rawduck_unit_tests"
# Tests of Ceph's object class and of pushdown decisions that need DuckDB but no Ceph.
CEPH_TESTS = "rawduck_ceph_tests"
SKIPPED = 77  # exit status of a script that lacks something
# Whether a stage of which nothing can be run, because its tools cannot be installed, is a failure.
EVERY_STAGE = os.environ.get("RAWDUCK_EVERY_STAGE", "") not in ("", "0")
# Left out of "usual" and "all": the sanitizers' stages run the same unit tests, an emulator runs them slowly,
# and nothing that odr links is run.
LONG_STAGES = ("unit", "odr", "aarch64")
FUZZ_SECONDS = int(os.environ.get("FUZZ_SECONDS", "60"))
#: What went wrong, said again at the end: of a long output often only that is kept.
FAILURES: list[str] = []
ARTIFACT_BYTES = 6000


@dataclass(frozen=True)
class Build:
    """What is compiled in build/<folder>, by one thread at a time."""

    folder: str
    targets: str
    definitions: tuple[str, ...]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def make(self, wrapper: tuple[str, ...] = (), **options) -> int:
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        definitions = [f"-D{definition}" for definition in ("RAWDUCK_EXTENSION=OFF", *self.definitions)]
        folder = str(BUILD / self.folder)
        configure = ["cmake", "-S", ".", "-B", folder, "-G", "Ninja", *launcher, *definitions]
        build = ["cmake", "--build", folder, "--target", *self.targets.split()]
        with self.lock:
            return run(configure, **{**options, "stdout": subprocess.DEVNULL}) or run(
                [*wrapper, *build], **options
            )


# The plain build of core and tests; what several stages use is made once.
HOST = Build(
    "host",
    # The benchmarks of the core are made, and not run.
    f"{CEPH_TESTS} cuda_checker cufile_stand_in volume_bench read_bench command_bench",
    ("RAWDUCK_EXTENSION=ON", "RAWDUCK_TESTS=ON", "RAWDUCK_BENCH=ON", f"Python_EXECUTABLE={sys.executable}"),
)
HOST_UNIT = replace(HOST, targets=UNIT_TESTS)
# Little optimized, and no more debug information than a sanitizer shows: half the time to compile.
SANITIZED = ("RAWDUCK_TESTS=ON", "CMAKE_BUILD_TYPE=None", "CMAKE_CXX_FLAGS=-O1 -g1")
ASAN = Build("asan", UNIT_TESTS, (*SANITIZED, "RAWDUCK_SANITIZE=address,undefined"))
TSAN = Build("tsan", UNIT_TESTS, (*SANITIZED, "RAWDUCK_SANITIZE=thread"))
FUZZ = Build("fuzz", "all", ("RAWDUCK_FUZZ=ON", "CMAKE_CXX_COMPILER=clang++"))
# By the stage that uses them, in this order.
BUILDS = {
    "asan": ASAN,
    "tsan": TSAN,
    "unit": HOST_UNIT,
    "ceph-unit": HOST,
    "fuzz": FUZZ,
    "sql": HOST,
    "bench": HOST,
}


def make_ahead(builds: list[Build]) -> None:
    """While the tests of another stage wait, and with what they leave of the processors.

    A stage whose build fails makes it again, and says so.
    """
    with open(REPORTS / "builds.log", "w") as log:
        for build in builds:
            build.make(("nice", "-n", "19"), stdout=log, stderr=subprocess.STDOUT)


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run(command: list[str], **options) -> int:
    print("$ " + " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, check=False, stdin=subprocess.DEVNULL, **options).returncode


def at_least_one_failure(counts: Counts, status: int) -> Counts:
    """A tool that fails without reporting a failed test counts as one."""
    if status == 0 or counts.failed:
        return counts
    FAILURES.append(f"a tool ended with {status} and reported no failed test")
    return counts + Counts(failed=1)


def not_made(build: Build) -> Counts:
    FAILURES.append(f"build/{build.folder} could not be made")
    return Counts(failed=1)


def unit_tests(
    build: Build,
    wrapper: tuple[str, ...] = (),
    leave_out: str = "",
    target: str = UNIT_TESTS,
    model_seconds: int = 3,
    one_seed_in: int = 1,
) -> Counts:
    """Builds the unit tests and runs them, one share per core at the same time."""
    if build.make() != 0:
        return not_made(build)
    shards = os.cpu_count() or 1
    with ThreadPoolExecutor(shards) as pool:
        environment = {"RAWDUCK_MODEL_SECONDS": str(model_seconds), "RAWDUCK_ONE_SEED_IN": str(one_seed_in)}
        run_one = functools.partial(run_shard, build.folder, target, shards, wrapper, leave_out, environment)
        return sum(pool.map(run_one, range(shards)), Counts())


def run_shard(
    name: str,
    target: str,
    shards: int,
    wrapper: tuple[str, ...],
    leave_out: str,
    environment: dict[str, str],
    shard: int,
) -> Counts:
    report = REPORTS / f"{name}-{shard}.xml"
    report.unlink(missing_ok=True)
    options = ["--gtest_brief=1", f"--gtest_output=xml:{report}", f"--gtest_filter=-{leave_out}"]
    share = {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)}
    command = [*wrapper, str(BUILD / name / target), *options]
    # Children of a fork start threads, also where memory of earlier tests is still being given back by one.
    sanitizers = {"UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "die_after_fork=0"}
    status = run(command, env={**environment, **os.environ, **share, **sanitizers})
    return at_least_one_failure(read_gtest(report), status)


def read_gtest(report: Path) -> Counts:
    """Counts, and says which tests were skipped and why."""
    counts = Counts()
    for test in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        if test.find("failure") is not None:
            counts.failed += 1
            FAILURES.append(f"failed: {test.get('classname')}.{test.get('name')}")
        elif test.get("result") != "completed":
            counts.skipped += 1
            print(f"skipped: {test.get('classname')}.{test.get('name')}: {reason_of_gtest(test)}", flush=True)
        else:
            counts.passed += 1
    return counts


def reason_of_gtest(test: ElementTree.Element) -> str:
    """The first line of the message is the place in the source."""
    skipped = test.find("skipped")
    lines = skipped.get("message", "").splitlines() if skipped is not None else []
    return " ".join(lines[1:]) or "disabled"


def pytest(folder: str, arguments: list[str], **options) -> Counts:
    report = REPORTS / f"{Path(folder).name}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", folder, f"--junitxml={report}", "-rfEs", *arguments]
    status = run(command, **options)
    if not report.exists():
        return at_least_one_failure(Counts(), status or 1)
    suite = ElementTree.parse(report).getroot().find("testsuite")
    for test in suite.iter("testcase"):
        if test.find("failure") is not None or test.find("error") is not None:
            FAILURES.append(f"failed: {test.get('classname')}.{test.get('name')}")
    total, skipped = int(suite.get("tests")), int(suite.get("skipped"))
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    return at_least_one_failure(Counts(total - failed - skipped, failed, skipped), status)


def fuzz() -> Counts:
    """Every fuzz target for a share of FUZZ_SECONDS. What it learned stays in build/fuzz for the next run."""
    if FUZZ.make() != 0:
        return not_made(FUZZ)
    targets = sorted((BUILD / "fuzz").glob("*_fuzz"))
    counts = Counts() if targets else Counts(failed=1)
    for target in targets:
        corpus = BUILD / "fuzz" / f"{target.name}_corpus"
        corpus.mkdir(exist_ok=True)
        seeds = ROOT / "test" / "fuzz" / "corpus" / target.name
        limits = [f"-max_total_time={FUZZ_SECONDS // len(targets)}", "-rss_limit_mb=4096", "-timeout=60"]
        options = [
            *limits,
            "-print_final_stats=1",
            "-print_funcs=0",
            "-verbosity=0",
        ]
        folders = [str(folder) for folder in (corpus, seeds) if folder.is_dir()]
        counts += fuzz_one(target, [*options, *folders])
    return counts


def fuzz_one(target: Path, arguments: list[str]) -> Counts:
    """The input that it failed on is printed: where it was found, nothing else may be kept."""
    artifacts = BUILD / "fuzz" / "failed" / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    artifacts.mkdir(parents=True)
    if run([str(target), f"-artifact_prefix={artifacts}/", *arguments]) == 0:
        artifacts.rmdir()
        return Counts(passed=1)
    FAILURES.append(f"{target.name} failed; what it printed is above")
    for artifact in artifacts.iterdir():
        content = artifact.read_bytes()
        shown = base64.b64encode(content[:ARTIFACT_BYTES]).decode()
        FAILURES.append(f"{artifact}: {len(content)} bytes, the first {ARTIFACT_BYTES} in base64: {shown}")
    return Counts(failed=1)


def odr() -> Counts:
    """Links everything in a way that compares types: two of one name with different bodies are an error."""
    if not shutil.which("g++"):
        print("odr: skipped: no g++, which alone compares types when it links")
        return Counts(skipped=1)
    programs = f"{UNIT_TESTS} {CEPH_TESTS} rawduck_nvme_tests rawduck_extensions"
    definitions = ["RAWDUCK_EXTENSION=ON", "RAWDUCK_TESTS=ON", f"Python_EXECUTABLE={sys.executable}"]
    # Not optimized: what is linked is not run.
    definitions += [
        "CMAKE_CXX_COMPILER=g++",
        "CMAKE_BUILD_TYPE=None",
        "CMAKE_CXX_FLAGS=-O0 -flto=auto -Werror=odr",
    ]
    build = Build("odr", programs, tuple(definitions))
    return not_made(build) if build.make() else Counts(passed=1)


def aarch64() -> Counts:
    """Unit tests and the wheel under QEMU, which emulates programs. Their system calls are this kernel's."""
    if run(["scripts/bootstrap.sh", "aarch64"]) or run(["scripts/make_sysroot.sh", "aarch64"]):
        return Counts(failed=1)
    return aarch64_unit_tests() + aarch64_wheel()


def aarch64_unit_tests() -> Counts:
    """Cross-compiled as wheels are."""
    sysroot = BUILD / "sysroot" / "aarch64"
    definitions = (
        "RAWDUCK_TESTS=ON",
        "CMAKE_BUILD_TYPE=Release",
        f"CMAKE_TOOLCHAIN_FILE={ROOT / 'cmake' / 'sysroot.cmake'}",
        f"RAWDUCK_SYSROOT={sysroot}",
        "RAWDUCK_ARCHITECTURE=aarch64",
        "RAWDUCK_GTEST_SOURCE=/usr/src/googletest",
    )
    build = Build("aarch64", UNIT_TESTS, definitions)
    return unit_tests(build, wrapper=("qemu-aarch64", "-L", str(sysroot)))


def aarch64_wheel() -> Counts:
    if run(["scripts/build_wheel.sh", "aarch64"]) or run(["scripts/make_sysroot.sh", "aarch64-python"]):
        return Counts(failed=1)
    return pytest("test/aarch64", [])


def nvme() -> Counts:
    """In a guest with emulated NVMe devices. The last line of its output sums it up."""
    process = subprocess.Popen(
        ["test/nvme/run.sh"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    last = ""
    for line in process.stdout:
        last = line.decode(errors="replace").strip() or last
        print(line.decode(errors="replace"), end="", flush=True)
    status = process.wait()
    found = re.fullmatch(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    return at_least_one_failure(Counts(*map(int, found.groups())) if found else Counts(failed=1), status)


def ceph(arguments: list[str], differential_seconds: int) -> Counts:
    """Against a real cluster. Installs Ceph's packages, builds the extension again where it lacks Ceph."""
    status = run(["scripts/bootstrap_ceph.sh"])
    if status != 0:
        return Counts(skipped=1) if status == SKIPPED else Counts(failed=1)
    rawduck = str(Path(sys.executable).with_name("rawduck"))
    if run([rawduck, "extension-path", "--ceph"]) != 0 and run(["scripts/build.sh"]) != 0:
        return Counts(failed=1)
    environment = {"RAWDUCK_DIFFERENTIAL_SECONDS": str(differential_seconds), **os.environ}
    return pytest("test/ceph", arguments, env=environment)


def with_stand_ins(folder: str, arguments: list[str]) -> Counts:
    """Of NVIDIA's driver, and of cuFile."""
    if HOST.make() != 0:
        return not_made(HOST)
    return pytest(folder, arguments)


#: Unit tests that `usual` leaves out under TSan: what takes long and has one thread.
LONG_UNDER_TSAN = (
    "*/DefragmenterTest.*",
    "*/EmptyVolumeTest.*",
    "*/LimitsTest.*",
    "*/SendReceiveTest.*",
    "CatalogTreeTest.*",
    "CudaDeviceTest.*",
    "DamagedPagesTest.*",
    "DamagedSharedPagesTest.*",
    "ExtentTreeTest.*",
    "FormatCutTest.*",
    "FreeSpaceTest.*",
    "JournalCutTest.*",
    "PosixLock.AChildOfAForkMayClose",
    "ReferenceTreeTest.*",
    "SnapshotTest.*",
    "SpaceTreeTest.*",
    "StripeTest.*",
    "SuperblockStatesTest.*",
    "TreeTest.*",
    "UncompressedStrings.*",
    "UnreadableTest.*",
)


def stages(arguments: list[str], usual: bool = False) -> dict[str, Callable[[], Counts]]:
    """`usual`: without the tests that take long."""
    if usual:
        arguments = ["-m", "not long", *arguments]
    # ThreadSanitizer's shadow memory collides with a highly randomised address space, and the long tests that
    # have one thread are nothing for it. Those that have many get half a minute.
    tsan = {
        "wrapper": ("setarch", platform.machine(), "-R"),
        "leave_out": ":".join(
            (
                "PowerCutTest.*",
                "DefragmentTest.PowerCuts",
                "StripePowerCutTest.*",
                "VolumeModelTest.*",
                "GrowTest.EveryEventOfAGrowth",
                "BackupHistoryTest.*",
                "ReceiveCutsTest.*",
                "*/SendReceiveTest.EveryByteCounts/*",
                "SnapshotTest.FilesOfManyExtents",
                "LimitStepsTest.*",
                "RemovedFileTest.OverwritingOneDoesNotFillTheVolume",
                *(LONG_UNDER_TSAN if usual else ()),
            )
        ),
        "model_seconds": 10 if usual else 30,
    }
    return {
        "style": lambda: pytest("test/style", arguments),
        # Each process has disks of its own, that it stops. Most of the time is waiting.
        "processes": lambda: pytest("test/processes", ["--numprocesses=3", "--dist=worksteal", *arguments]),
        "unit": lambda: unit_tests(HOST_UNIT),
        "asan": lambda: unit_tests(ASAN, one_seed_in=3 if usual else 1),
        "tsan": lambda: unit_tests(TSAN, **tsan),
        # DuckDB comes from the Python package of the environment that runs this.
        "ceph-unit": lambda: unit_tests(HOST, target=CEPH_TESTS),
        "odr": odr,
        "aarch64": aarch64,
        "fuzz": fuzz,
        "sql": lambda: with_stand_ins("test/sql", ["--numprocesses=auto", "--dist=worksteal", *arguments]),
        "crash": lambda: pytest("test/crash", ["--numprocesses=auto", "--dist=worksteal", *arguments]),
        "bench": lambda: with_stand_ins("test/bench", arguments),
        "nvme": nvme,
        "ceph": lambda: ceph(arguments, differential_seconds=20 if usual else 100),
    }


def main() -> int:
    names, _, arguments = " ".join(sys.argv[1:]).partition("--")
    known = stages(arguments.split(), usual="usual" in names.split())
    most = [name for name in known if name not in LONG_STAGES]
    wanted = [name for word in names.split() for name in (most if word in ("usual", "all") else [word])]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        print(f"run_tests.py: stages are: usual, all, {', '.join(known)}", file=sys.stderr)
        return 2
    REPORTS.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in wanted:
        print(f"\n== {name}", flush=True)
        start = time.monotonic()
        if name == "processes":
            later = dict.fromkeys(build for stage, build in BUILDS.items() if stage in wanted)
            threading.Thread(target=make_ahead, args=[list(later)], daemon=True).start()
        counts = known[name]()
        if EVERY_STAGE and counts.passed + counts.failed == 0:
            print(f"run_tests.py: nothing of {name} was run, and RAWDUCK_EVERY_STAGE asks for it")
            counts += Counts(failed=1)
        results[name] = (counts, time.monotonic() - start)
    print()
    for failure in FAILURES:
        print(failure)
    for name, (counts, seconds) in results.items():
        print(f"{name:6} {counts}, {seconds:.0f} s")
    total = sum((counts for counts, _ in results.values()), Counts())
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
