"""The part of docs/REFERENCE.md about Ceph is what its extension registers. Needs no cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import rawduck

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_code_says():
    try:
        rawduck.extension_path(ceph=True)
    except rawduck.RawduckError as error:
        pytest.skip(str(error))
    command = [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--check", "ceph"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_all_is_described():
    try:
        connection = rawduck.connect(ceph=True)
    except rawduck.RawduckError as error:
        pytest.skip(str(error))
    with connection:
        query = "SELECT description, examples FROM duckdb_functions() WHERE function_name ^@ 'rados_'"
        functions = connection.execute(query).fetchall()
        assert functions
        assert all(description and examples for description, examples in functions)
        query = "SELECT description FROM duckdb_settings() WHERE name ^@ 'rados_'"
        settings = connection.execute(query).fetchall()
        assert settings
        assert all(len(description) > 20 for (description,) in settings)
