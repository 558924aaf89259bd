"""The wheel for aarch64, in Debian's Python for it, under QEMU: `make test-aarch64`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from recipes import AFTER, run_program, run_recipe

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ROOT / "build/sysroot/aarch64-python"
#: Of the recipes, those that are done within a minute.
RECIPES = ("A database on a raw drive", "A fast staging area", "Backup")


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = (ROOT / "dist").glob("rawduck-*_aarch64.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> str:
    """A program that is that Python, with the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("aarch64")
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 31)]
    options = [*platforms, "--python-version=3.11", "--only-binary=:all:", f"--target={folder / 'site'}"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *options, str(wheel)]
    subprocess.run(command, check=True)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\nexec qemu-aarch64 -L {SYSTEM} {SYSTEM}/usr/bin/python3 "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def options(python) -> dict[str, dict[str, str]]:
    """Of this process only what tells where programs are: no module of this tree is found."""
    return {"env": {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(python).with_name("site"))}}


def test_it_is_what_is_asked_for(python, options, tmp_path):
    program = (
        "import platform, duckdb, rawduck\nprint(platform.machine(), duckdb.__version__, rawduck.__file__)"
    )
    machine, version, place = run_program(program, tmp_path, python, **options).split()
    assert (machine, version) == ("aarch64", "2.0.0")
    assert place.startswith(options["env"]["PYTHONPATH"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("title", RECIPES)
def test_recipe(python, options, tmp_path, title):
    run_recipe(title, tmp_path, AFTER[title], python, **options)


@pytest.mark.timeout(600)
def test_without_io_uring(python, options, tmp_path):
    """The emulator has none, and says so like a kernel; volumes are read and written all the same."""
    program = (
        "import rawduck\ncon = rawduck.connect()\n"
        "con.execute(\"CALL nvme_format('/data/disk.rawduck', size := '64M')\")\n"
        "con.execute(\"ATTACH 'nvme:///data/disk.rawduck/x.duckdb' AS x\")\n"
        "print(*con.execute('SELECT engine, engine_reason FROM nvme_volumes()').fetchone())"
    )
    printed = run_program(program, tmp_path, python, **options)
    assert printed.startswith("posix ")
    assert "io_uring" in printed
