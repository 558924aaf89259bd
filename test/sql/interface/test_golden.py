"""What the `rawduck` command prints at terminals of 80 and 200 columns is what is in golden/."""

from __future__ import annotations

import sys
from pathlib import Path

import golden
import pytest


@pytest.mark.parametrize("columns", golden.WIDTHS)
def test_what_people_see(columns):
    program = str(Path(sys.executable).with_name("rawduck"))
    assert golden.transcript(program, columns) == golden.golden(columns).read_text()


@pytest.mark.parametrize("columns", golden.WIDTHS)
def test_tables_fit_the_terminal(columns):
    """Messages are one line however long; tables and help are not wider than the terminal."""
    lines = golden.golden(columns).read_text().splitlines()
    messages = ("$ ", "rawduck: ", "Copied ", "Formatted ", "Grown ", "/")
    assert [line for line in lines if len(line) > columns and not line.startswith(messages)] == []
