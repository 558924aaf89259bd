"""Fixtures: formatted targets of every kind, and connections with the extension loaded."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import rawduck
from support import DURABLE_KINDS, KINDS, make_target


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
