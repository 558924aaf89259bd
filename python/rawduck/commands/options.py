"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="A block device, a regular file, vfio:<PCI function>n<namespace>, or memory:<name>.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Csv = Annotated[
    bool, typer.Option("--csv", help="Print CSV; what is nested is JSON in its cell.", show_default=False)
]
AgreesToForce = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="With --force: destroy it without asking; needed where there is no terminal."
    ),
]
