"""The rados_* settings and functions: checks, defaults and descriptions, and that CEPH.md lists them."""

from __future__ import annotations

import re

import duckdb
import pytest
from ceph_support import ROOT, one

SETTINGS = {"rados_timeout": "30", "rados_offload": "auto", "rados_offload_in_flight": "0",
            "rados_offload_lz4": "false", "rados_offload_cache": "true"}  # fmt: skip
FUNCTIONS = {"rados_stats", "rados_reset_stats", "rados_scans"}


def test_defaults_and_descriptions(con):
    query = "SELECT name, value, description FROM duckdb_settings() WHERE name LIKE 'rados%'"
    rows = con.execute(query).fetchall()
    assert {name: value for name, value, _ in rows} == SETTINGS
    assert all(description for _, _, description in rows)


def test_functions_are_described(con):
    query = "SELECT function_name, description FROM duckdb_functions() WHERE function_name LIKE 'rados%'"
    rows = con.execute(query).fetchall()
    assert {name for name, _ in rows} == FUNCTIONS
    assert all(description for _, description in rows)


def test_the_documentation_lists_them_all():
    text = (ROOT / "docs" / "CEPH.md").read_text()
    text = text.partition("## Settings and functions")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(rados_\w+)` \| `?(\w+)`? \|", text, re.MULTILINE))
    assert documented == SETTINGS
    assert set(re.findall(r"^\| `(rados_\w+)\(\)` \|", text, re.MULTILINE)) == FUNCTIONS


@pytest.mark.parametrize(
    ("setting", "value", "word"),
    [
        ("rados_offload", "'maybe'", "'auto', 'never', 'always', 'shared', 'filters'"),
        ("rados_offload", "NULL", "'auto'"),
        ("rados_offload_in_flight", "1025", "between 0 and 1024 objects"),
        ("rados_timeout", "0", "seconds"),
        ("rados_timeout", "NULL", "seconds"),
    ],
)
def test_bad_values(con, setting, value, word):
    with pytest.raises(duckdb.InvalidInputException, match=rf"^[^:]*: {setting}: .*{word}"):
        con.execute(f"SET {setting} = {value}")
    assert one(con, f"SELECT current_setting('{setting}')::VARCHAR") == SETTINGS[setting]


@pytest.mark.parametrize("value", ["never", "always", "shared", "filters", "auto"])
def test_every_mode_can_be_set(con, value):
    con.execute(f"SET rados_offload = '{value}'")
    assert one(con, "SELECT current_setting('rados_offload')") == value
