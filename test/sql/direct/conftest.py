"""A directory that is not in one of root's own, for other users."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def box():
    """Everybody may change it, and nobody but root may list it."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    made = Path(tempfile.mkdtemp(prefix="rawduck_box_", dir="/var/tmp"))
    made.chmod(0o333)
    yield made
    shutil.rmtree(made)
