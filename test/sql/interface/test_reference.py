"""docs/REFERENCE.md is what the extension registers, and what it registers is described."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rawduck.render import rows
from support import run_python

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "REFERENCE.md"
FUNCTIONS = "SELECT * FROM duckdb_functions() WHERE regexp_matches(function_name, '^(nvme|gpu)_')"
SETTINGS = "SELECT * FROM duckdb_settings() WHERE starts_with(name, 'nvme_')"


def test_the_page_is_what_the_code_says():
    command = [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--check", "core"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_function_is_described(con):
    """Those for tests, too. DuckDB knows of columns where a call is bound, which runs nothing."""
    functions = rows(con, FUNCTIONS)
    assert len(functions) >= 14
    for function in functions:
        name, tags = function["function_name"], function["tags"]
        assert len(function["description"] or "") > 20, name
        assert name in "".join(function["examples"]), name
        positional = [p for p in function["parameters"] if f"default.{p}" not in tags]
        arguments = ", ".join("'x'" for _ in positional)
        columns = [row["column_name"] for row in rows(con, f"DESCRIBE FROM {name}({arguments})")]
        described = [tag.removeprefix("column.") for tag in tags if tag.startswith("column.")]
        if name not in ("nvme_simulate", "nvme_random_reads"):
            assert described == columns, name


def test_every_example_is_of_a_call_that_binds(con):
    """Preparing a statement binds it: names of columns and parameters are right."""
    for function in rows(con, FUNCTIONS):
        for example in function["examples"]:
            con.execute(f"PREPARE example AS {example.replace('CALL ', 'FROM ')}")


def test_the_page_names_all_that_users_have_and_no_more(monkeypatch):
    monkeypatch.delenv("RAWDUCK_TEST_FUNCTIONS")
    names = run_python(f"""
        for query in ({FUNCTIONS!r}, {SETTINGS!r}):
            names = query.replace("*", "COLUMNS('^(function_)?name$')")
            print(*[row[0] for row in connection.execute(names).fetchall()])
    """).split()
    assert {"nvme_format", "nvme_engine"} < set(names)
    text = PAGE.read_text()
    assert not [name for name in names if f"`{name}" not in text]
    assert "nvme_simulate" not in text
    assert "nvme_random_reads" not in text


def test_every_setting_is_described(con):
    settings = rows(con, SETTINGS)
    assert len(settings) >= 8
    assert not [setting["name"] for setting in settings if len(setting["description"]) < 40]
