"""Fixtures: formatted targets of every kind, and connections with the extension loaded."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import rawduck
from holders import TOOLS
from support import DURABLE_KINDS, KINDS, loop_device, make_target


@pytest.fixture(params=KINDS)
def target(request, tmp_path):
    """A formatted volume in memory, in a file and on a loop device, with LBAs of 512 and 4096 bytes."""
    with make_target(request.param, tmp_path) as made:
        yield made


@pytest.fixture(params=DURABLE_KINDS)
def durable_target(request, tmp_path):
    """A volume that outlives the process."""
    with make_target(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def file_target(tmp_path):
    """A volume in a regular file, for what does not depend on the kind of target."""
    with make_target("file-4096", tmp_path) as made:
        yield made


@pytest.fixture
def new_target(tmp_path):
    """Makes more targets: new_target('file-512', size='32M')."""
    with ExitStack() as stack:
        yield lambda kind, size="256M": stack.enter_context(make_target(kind, tmp_path, size))


@pytest.fixture
def con():
    """A connection that is closed before its volumes go away: ask for it after the target."""
    with rawduck.connect() as connection:
        yield connection


@pytest.fixture(scope="session")
def pause_at_locks(tmp_path_factory) -> Path:
    """A library to preload: see its source."""
    library = tmp_path_factory.mktemp("pause") / "pause_at_locks.so"
    source = Path(__file__).with_name("pause_at_locks.cpp")
    subprocess.run(["c++", "-std=c++17", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture
def partitions(tmp_path):
    """A loop device with two partitions, and these."""
    with loop_device(tmp_path / "parts.img", 512, "128M") as disk:
        names = [f"{disk}p{number}" for number in (1, 2)]
        for number in (1, 2):
            add = [
                shutil.which("addpart", path=TOOLS),
                disk,
                str(number),
                str(number * 120000 - 110000),
                "98304",
            ]
            result = subprocess.run(add, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                pytest.skip(f"no partitions of loop devices here: {result.stderr.strip()}")
        try:
            yield disk, *names
        finally:
            delpart = shutil.which("delpart", path=TOOLS)
            codes = [subprocess.run([delpart, disk, str(n)], check=False).returncode for n in (1, 2)]
            assert codes == [0, 0]
