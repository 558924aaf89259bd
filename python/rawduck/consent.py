"""Consent to what formatting destroys. It holds for what lies there, and not for its description: something
else with the same description was not agreed to, and is not destroyed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import typer

from rawduck import render, volumes
from rawduck.errors import RawduckError

_VOLUMES = ("volume", "member")


def to_format(connection: duckdb.DuckDBPyConnection, targets: list[str], yes: bool) -> list[str]:
    """Says what lies on the targets of a volume, and asks unless `yes`. Returns the identities agreed to.

    The name of a file that is no volume has to be typed. Raises RawduckError without consent, DuckDB's
    errors where a target is in use.
    """
    occupants = volumes.occupants(connection, targets)
    found: dict[str, list[render.Row]] = {}
    for occupant in occupants:
        found.setdefault(occupant["target"], []).append(occupant)
    _say([f"{target}: {_description(rows)}" for target, rows in found.items()], yes)
    if not yes:
        _ask(found)
    return [occupant["identity"] for occupant in occupants]


def to_replace_own(connection: duckdb.DuckDBPyConnection, target: str, label: str) -> list[str]:
    """What lies in a file that a program makes anew each time, and asks nobody about: the identities.

    Raises RawduckError for anything but a volume that the program has labelled: by its name alone it may be
    somebody else's.
    """
    occupants = volumes.occupants(connection, [target])
    for occupant in occupants:
        if occupant["kind"] != "volume" or volumes.volume_info(connection, target)["label"] != label:
            raise RawduckError(
                f"{target} would be replaced, and was not made here: {_description(occupants)}. Nothing was "
                "changed: move or remove it, or name another folder with --work-dir"
            )
    return [occupant["identity"] for occupant in occupants]


def _description(occupants: list[render.Row]) -> str:
    return "; ".join(
        row["description"] + (f", UUID {row['uuid']}" if row["uuid"] else "") for row in occupants
    )


def _say(descriptions: list[str], yes: bool) -> None:
    if descriptions and not yes and not sys.stdin.isatty():
        raise RawduckError(
            f"{'. '.join(descriptions)}. Nothing was changed: there is no terminal to ask at. To destroy "
            "it, say --force --yes"
        )
    for description in descriptions:
        render.print_note(f"Will be destroyed: {description}" if yes else description)


def _ask(found: dict[str, list[render.Row]]) -> None:
    """Of each file that is no volume, its name; of all others together, whether."""
    others = [target for target, rows in found.items() if _is_other_file(target, rows)]
    for target in others:
        name = Path(target).name
        shown = render.printable(name)
        if answer(typer.prompt, f"To destroy it, type its name, {shown}") not in (name, shown):
            raise RawduckError(f"{target}: left as it is")
    asked = [target for target in found if target not in others]
    if asked and not answer(typer.confirm, "Destroy it?" if len(asked) == 1 else "Destroy them?"):
        raise RawduckError(f"{', '.join(asked)}: left as {'it is' if len(asked) == 1 else 'they are'}")


def answer(ask: Callable[..., str | bool], question: str) -> str | bool:
    """What typer.prompt or typer.confirm is told; Ctrl-C is an interrupt there, too, and the end of input no
    consent."""
    try:
        return ask(question, err=True)
    except typer.Abort as abort:
        typer.echo(err=True)  # the question's line has no end yet
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise RawduckError("no answer was given; nothing was changed") from None


def _is_other_file(target: str, occupants: list[render.Row]) -> bool:
    return Path(target).is_file() and not any(row["kind"] in _VOLUMES for row in occupants)
