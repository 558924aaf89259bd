"""Reads a sqllogictest into commands, the way DuckDB writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Command:
    """One command: its words, and below them the SQL (or a loop's body) and what is expected."""

    line: int
    words: list[str]
    sql: str = ""
    expected: list[str] = field(default_factory=list)
    #: skipif and onlyif in front of it, as (what, condition).
    conditions: list[tuple[str, str]] = field(default_factory=list)
    body: list[Command] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.words[0]


LOOPS = {"loop", "foreach", "concurrentloop", "concurrentforeach"}
_WITH_SQL = {"statement", "query"}


class ScriptError(Exception):
    """The file is not a sqllogictest that this reader understands."""


def read(path: Path) -> list[Command]:
    """The commands of a test, loops nested."""
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    commands, position = _read_block(lines, 0, nested=False)
    assert position == len(lines)
    return commands


def _read_block(lines: list[str], position: int, nested: bool) -> tuple[list[Command], int]:
    commands: list[Command] = []
    conditions: list[tuple[str, str]] = []
    while position < len(lines):
        text = lines[position].strip()
        position += 1
        if not text or text.startswith("#"):
            continue
        words = text.split()
        if words[0] == "endloop":
            if not nested:
                raise ScriptError(f"line {position}: endloop without a loop")
            return commands, position
        if words[0] in ("skipif", "onlyif"):
            conditions.append((words[0], words[1]))
            continue
        command = Command(position, words, conditions=conditions)
        conditions = []
        if command.kind in LOOPS:
            command.body, position = _read_block(lines, position, nested=True)
        elif command.kind in _WITH_SQL:
            position = _read_statement(lines, position, command)
        commands.append(command)
    if nested:
        raise ScriptError("a loop without endloop")
    return commands, position


def _read_statement(lines: list[str], position: int, command: Command) -> int:
    """SQL up to an empty line or ----, then the expectation up to an empty line."""
    sql = []
    while position < len(lines) and lines[position].strip() and lines[position] != "----":
        if not lines[position].startswith("#"):
            sql.append(lines[position])
        position += 1
    command.sql = "\n".join(sql)
    if position < len(lines) and lines[position] == "----":
        position += 1
        while position < len(lines) and lines[position].strip("\r"):
            command.expected.append(lines[position].rstrip("\r"))
            position += 1
    return position
