"""The recipes of docs/INSTALL.md: what the page says is what is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "INSTALL.md"


def recipe(title: str) -> str:
    """The Python of the section with this title."""
    section = re.search(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    blocks = re.findall(r"```python\n(.*?)```", section[1] if section else "", re.DOTALL)
    assert len(blocks) == 1, f"docs/INSTALL.md has {len(blocks)} programs under '{title}'"
    return blocks[0]


def run_recipe(title: str, folder: Path, then: str = "", python: str = sys.executable, **options) -> str:
    """Runs it and `then` in a process of its own, with `folder` for /data. Returns what it printed."""
    return run_program(f"{recipe(title)}\n{then}", folder, python, **options)


def run_program(program: str, folder: Path, python: str = sys.executable, **options) -> str:
    program = re.sub("(?<!rados:/)/data/", f"{folder}/", program)
    result = subprocess.run(
        [python, "-c", program], cwd=folder, capture_output=True, text=True, check=False, **options
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


#: What is true after a recipe that needs no more than a folder, said in the same process.
AFTER = {
    "Spill to a spare drive": "assert con.sql('SELECT count(*) FROM sorted').fetchall() == [(20000000,)]\n"
    "reads = con.sql('SELECT sum(spill_reads) FROM nvme_volumes()').fetchall()\n"
    "assert reads[0][0] > 400, reads",
    "A database on a raw drive": "",
    "A fast staging area": "staged = con.sql('SELECT sum(id) FROM staging.orders').fetchall()\n"
    "assert staged == [(499999500000,)]",
    "Backup": "con.close(); import duckdb; con = duckdb.connect('/data/backup.duckdb')\n"
    "assert con.sql('SELECT sum(id) FROM orders').fetchall() == [(4999950000,)]",
}
