"""The wheel of `make wheel` in empty environments, whose PATH has no compiler: `make test-wheel`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import golden
import pytest
from rawduck import duckdb_source
from recipes import AFTER, PAGE, run_recipe

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(rawduck VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
WHEEL = ROOT / "dist" / f"rawduck-{VERSION}-py3-none-manylinux_2_31_x86_64.whl"
SYSROOT = ROOT / "build/sysroot/x86_64"
#: Of these, every Linux with that C library has a version that fits.
SYSTEM_LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "libgcc_s.so.1",
    "libstdc++.so.6",
}
LOADER = "ld-linux-x86-64.so.2"
CPYTHONS = ("3.11", "3.12", "3.13", "3.14")
OTHER_DUCKDB = "1.5.6"


def run(*command: str | Path, **options) -> str:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


class Environment:
    """A virtual environment, whose programs find no others."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        self.bin = folder / "bin"
        self.folder = folder
        self.install(*arguments)

    def install(self, *arguments: str | Path) -> None:
        run(self.bin / "python", "-m", "pip", "install", "--quiet", *arguments)

    @property
    def variables(self) -> dict[str, str]:
        registries = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        return {**registries, "PATH": str(self.bin), "HOME": str(self.folder)}

    def run(self, program: str, *arguments: str | Path) -> str:
        return run(self.bin / program, *arguments, cwd=self.folder, env=self.variables)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """As `pip install` makes it, beside a library that needs an older rich."""
    return Environment(tmp_path_factory.mktemp("environment"), WHEEL, "rich<15")


@pytest.fixture(scope="module")
def host_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(WHEEL) as archive:
        archive.extractall(folder)
    return folder / "rawduck" / "librawduck_host.so"


def test_what_it_has_inside(host_library):
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "--dynamic", host_library))
    assert set(needed) - SYSTEM_LIBRARIES - {LOADER} == set()
    symbols = run("nm", "--dynamic", host_library)
    # Types of std::filesystem changed between the oldest libstdc++ and today's.
    assert not re.search(r"blkid_|io_uring_|St10filesystem", symbols)
    licenses = {path.name for path in (host_library.parent / "licenses").iterdir()}
    assert licenses == {"libblkid", "liburing"}


def test_pages_come_with_it(environment):
    """Messages name docs/devices.md, and exit codes are in the manual."""
    share = environment.folder / "share"
    assert (share / "doc/rawduck/docs/devices.md").is_file()
    assert "EXIT STATUS" in (share / "man/man1/rawduck.1").read_text()


def undefined_in(library: Path, libraries: Path) -> set[str]:
    """Symbols that the dynamic linker and the libraries of the oldest system do not have."""
    tracing = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "1", "LD_BIND_NOW": "1"}
    command = [
        libraries / LOADER,
        "--library-path",
        f"{libraries}:{SYSROOT}/usr/lib/x86_64-linux-gnu",
        library,
    ]
    result = subprocess.run(list(map(str, command)), env=tracing, capture_output=True, text=True, check=True)
    assert "not found" not in result.stdout + result.stderr
    return set(re.findall(r"undefined symbol: (\S+)", result.stdout + result.stderr))


@pytest.mark.parametrize("version", CPYTHONS)
def test_symbols(host_library, tmp_path, version):
    """The oldest C and C++ libraries, and DuckDB's wheel for each Python, have all of them."""
    undefined = undefined_in(host_library, SYSROOT / "lib/x86_64-linux-gnu")
    assert any("duckdb" in symbol for symbol in undefined)
    options = ["--python-version", version, "--platform", "manylinux_2_28_x86_64", "--only-binary", ":all:"]
    run(sys.executable, "-m", "pip", "download", "--no-deps", "--dest", tmp_path, *options, "duckdb==2.0.0")
    with zipfile.ZipFile(next(tmp_path.glob("duckdb-*.whl"))) as archive:
        module = next(name for name in archive.namelist() if re.match(r"_duckdb\..*\.so$", name))
        archive.extract(module, tmp_path)
    defined = run("nm", "--dynamic", "--defined-only", "--format=posix", tmp_path / module)
    assert undefined - {line.split()[0].partition("@")[0] for line in defined.splitlines()} == set()


def test_first_query(environment):
    page = PAGE.read_text()
    command = re.search(r"^venv/bin/rawduck (format disk.rawduck \S+ \S+)", page, re.MULTILINE)[1]
    environment.run("rawduck", *command.split())
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1].replace(
        "/data/", f"{environment.folder}/"
    )
    assert "1000000" in environment.run("python", "-c", program)
    assert "sales.duckdb" in environment.run("rawduck", "ls", "disk.rawduck")
    assert int(environment.run("python", "-c", "import rich; from importlib.metadata import version; "
                               "print(version('rich').split('.')[0])")) < 15  # fmt: skip


@pytest.mark.timeout(900)
def test_first_query_on_a_bare_system():
    """A minimal Debian 12 with Python and no compiler, which build/bare keeps for the next run."""
    if os.geteuid() != 0:
        pytest.skip("a new root needs root")
    root = ROOT / "build/bare"

    def inside(command: str) -> str:
        return run(ROOT / "scripts/fresh_root.sh", command, env={**os.environ, "FRESH_ROOT": str(root)})

    inside("apt-get -qq update && apt-get -qq -y --no-install-recommends install python3-venv libstdc++6")
    assert inside("! command -v cc c++ gcc g++ clang cmake ninja") == ""
    shutil.copy(WHEEL, root / "root")
    program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    (root / "root/first.py").write_text(program.replace("/data/", "/root/"))
    inside("cd && rm -rf venv disk.rawduck && python3 -m venv venv && venv/bin/pip install -q *.whl")
    inside("cd && venv/bin/rawduck format disk.rawduck --size 256M")
    assert "1000000" in inside("cd && venv/bin/python first.py")


@pytest.mark.parametrize("title", AFTER)
def test_recipe(environment, tmp_path, title):
    run_recipe(title, tmp_path, AFTER[title], str(environment.bin / "python"), env=environment.variables)


@pytest.mark.parametrize("columns", golden.WIDTHS)
def test_what_people_see(environment, columns):
    """With another version of what draws tables, too."""
    printed = golden.transcript(str(environment.bin / "rawduck"), columns)
    assert printed == golden.golden(columns).read_text()


def test_ceph_is_left_out(environment):
    program = (
        "import rawduck\ntry: rawduck.connect(ceph=True)\nexcept rawduck.RawduckError as error: print(error)"
    )
    assert "wheels are" in environment.run("python", "-c", program)


@pytest.mark.timeout(900)
def test_demo(environment):
    """It downloads DuckDB's source release for queries and answers."""
    environment.install(f"rawduck[demo] @ file://{WHEEL}")
    assert "22" in environment.run("rawduck", "demo", "--scale", "0.01")
    assert (environment.folder / "build" / f"duckdb-{duckdb_source.VERSION}").is_dir()


def test_another_duckdb(tmp_path):
    """The error names the DuckDB, and the rawduck, that fit."""
    other = Environment(tmp_path, "--no-deps", WHEEL, f"duckdb=={OTHER_DUCKDB}")
    program = "import rawduck\ntry: rawduck.connect()\nexcept rawduck.RawduckError as error: print(error)"
    message = other.run("python", "-c", program)
    for part in (
        "for DuckDB 2.0.0",
        "pip install duckdb==2.0.0",
        f"--upgrade rawduck duckdb=={OTHER_DUCKDB}",
    ):
        assert part in message
    load = (
        "import duckdb, rawduck\n"
        "con = duckdb.connect(config={'allow_unsigned_extensions': True})\n"
        "try: con.execute(f\"LOAD '{rawduck.extension_path()}'\")\nexcept duckdb.Error as error: print(error)"
    )
    assert "v2.0.0" in other.run("python", "-c", load)
