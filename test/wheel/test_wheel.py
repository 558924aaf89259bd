"""The wheel of `make wheel` in empty environments, whose PATH has no compiler: `make test-wheel`."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile

import golden
import pytest
from rawduck import duckdb_source
from recipes import AFTER, PAGE, run_recipe
from wheels import (
    CPYTHONS,
    ROOT,
    SYSROOT,
    WHEEL,
    Environment,
    needed_by,
    run,
    undefined_in,
    unpacked,
)

OTHER_DUCKDB = "1.5.6"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """As `pip install` makes it, beside a library that needs an older rich."""
    return Environment(tmp_path_factory.mktemp("environment"), WHEEL, "rich<15")


@pytest.fixture(scope="module")
def host_library(tmp_path_factory):
    return unpacked(WHEEL, tmp_path_factory.mktemp("unpacked")) / "rawduck" / "librawduck_host.so"


def test_what_it_has_inside(host_library):
    assert needed_by(host_library) == set()
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
    assert "pip install 'rawduck[ceph]'" in environment.run("python", "-c", program)


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
