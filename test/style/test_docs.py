"""Names and paths in the documents are those of the code, and their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
)
CODE_FOLDERS = ("src/", "ceph/", "python/", "test/", "bench/", "scripts/", "cmake/")
#: `Class::Member`, or a name with an upper-case letter behind a lower-case one, in a code span or a diagram.
CODE_NAME = re.compile(r"\b(?:[A-Za-z_]+::)+(\w+)|\b([A-Z][a-z]+(?:[A-Z][a-z]+)+)\b")
PATH = re.compile(r"(?<![\w/.])(?:src|ceph|python|test|bench|scripts|docs|cmake)/[\w./*-]*\w")
#: Of its tests, in CONTRIBUTING.md.
PATHS_OF_DUCKDB = {f"test/sql/{path}" for path in ("attach", "copy_database", "index/art/storage", "storage")}
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")
#: Written like names of our code, and of others.
OF_OTHERS = {
    "DuckDB",
    "GitHub",
    "TigerBeetle",
    "PostgreSQL",
    "BlueStore",
    "RawDuck",
    "EuroSys",
    "DirectStorage",
    "ExecStart",
    "MemoryMax",
}


@cache
def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


@cache
def words_of_code() -> set[str]:
    code = [
        name for name in tracked() if name.startswith(CODE_FOLDERS) and name.endswith((".cpp", ".hpp", ".py"))
    ]
    return {word for name in code for word in re.findall(r"\w+", (ROOT / name).read_text())}


def code_of(text: str) -> str:
    """Code spans and blocks."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, flags=re.DOTALL))


def unknown_names(text: str) -> set[str]:
    names = {member or name for member, name in CODE_NAME.findall(code_of(text))}
    return names - words_of_code() - OF_OTHERS


def missing_paths(text: str) -> set[str]:
    return {path for path in PATH.findall(text) if not any(ROOT.glob(path))} - PATHS_OF_DUCKDB


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(name: str) -> set[str]:
    dead = set()
    for target, anchor in LINK.findall((ROOT / name).read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path = (ROOT / name).parent / target if target else ROOT / name
        if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
            dead.add(f"{target}#{anchor}")
    return dead


@pytest.mark.parametrize("name", DOCUMENTS)
def test_names_paths_and_links(name):
    text = (ROOT / name).read_text()
    assert not unknown_names(text)
    assert not missing_paths(text)
    assert not dead_links(name)


def test_what_is_not_there_is_found():
    absent = "_".join(("no", "such", "member"))  # here, too
    assert unknown_names(f"`Volume::{absent}` and `VolumeState`") == {absent}
    assert missing_paths("see src/volume and src/nowhere/at_all.cpp") == {"src/nowhere/at_all.cpp"}
