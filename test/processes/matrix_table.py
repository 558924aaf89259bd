"""Prints what two processes may do to one target, as the tests found it."""

from __future__ import annotations

LEGEND = "w: works; r: is refused, with a message; WRONG: not as expected, see the failure; blank: not tried"


def lines(rows: list[dict]) -> list[str]:
    """One table per kind of target; a row per state of the holder and way of naming the target."""
    text = []
    for table in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == table]
        operations = list(dict.fromkeys(name for row in own for name in row["row"]))
        states = list(dict.fromkeys(row["state"] for row in own))
        own.sort(key=lambda row: states.index(row["state"]))
        headings = ["one process", "the target's name in the other", *operations]
        body = [[row["state"], row["way"], *(_mark(row, name) for name in operations)] for row in own]
        widths = [max(len(line[i]) for line in [headings, *body]) for i in range(len(headings))]
        text += ["", f"Two processes and one {table}: {LEGEND}"]
        text += [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [headings, *body]
        ]
    return text


def _mark(row: dict, name: str) -> str:
    if name not in row["row"]:
        return ""
    return {"works": "w", "refused": "r"}.get(row["row"][name], "WRONG")
