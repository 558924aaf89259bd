"""The `rawduck` command."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Annotated

import duckdb
import typer

import rawduck
from rawduck import render
from rawduck.commands import (
    backup,
    bench,
    ceph,
    copy,
    defragment,
    demo,
    devices,
    names,
    snapshots,
    top,
    vfio,
    volume,
)
from rawduck.commands.options import Json
from rawduck.start import EXIT_FAILED, EXIT_INTERRUPTED

_QUERY_INTERRUPTED = "Query interrupted"

app = typer.Typer(
    name="rawduck",
    help="DuckDB on raw volumes: NVMe and block devices, files and memory, with no file system in between.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
devices.register(app)
volume.register(app)
snapshots.register(app)
backup.register(app)
top.register(app)
copy.register(app)
names.register(app)
defragment.register(app)
bench.register(app)
demo.register(app)
ceph.register(app)
vfio.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        render.print_line(f"rawduck {rawduck.__version__}, DuckDB {duckdb.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions.")
    ] = False,
) -> None:
    """What may stand before a command."""


@app.command(
    "extension-path",
    epilog="Example: LOAD the printed path in Python's DuckDB with allow_unsigned_extensions.",
)
def extension_path(
    ceph: Annotated[bool, typer.Option("--ceph", help="The extension for rados:// paths.")] = False,
) -> None:
    """Print where the loadable extension is."""
    render.print_line(str(rawduck.extension_path(ceph=ceph)))


@app.command(epilog="Example: rawduck version --json")
def version(json: Json = False) -> None:
    """Print the versions of rawduck and of DuckDB."""
    if json:
        render.print_json({"rawduck": rawduck.__version__, "duckdb": duckdb.__version__})
    else:
        _print_version(True)


def _is_interrupt(left: SystemExit) -> bool:
    """Whether typer has been interrupted, and leaves without a word, as 0.29 does."""
    reason: BaseException | None = left
    while reason and not isinstance(reason, KeyboardInterrupt):
        reason = reason.__cause__ or reason.__context__
    return reason is not None and left.code == EXIT_INTERRUPTED


def main() -> None:
    """Runs the command line; what goes wrong becomes one line and an exit code."""
    try:
        app()
    except KeyboardInterrupt:
        render.print_error("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except SystemExit as left:
        if _is_interrupt(left):
            render.print_error("interrupted")
        raise
    except (duckdb.Error, rawduck.RawduckError, OSError) as error:
        render.print_error(_one_line(str(error)))
        sys.exit(EXIT_FAILED)
    except RuntimeError as error:
        # DuckDB's module tells an interrupt during a query in this way.
        if str(error) != _QUERY_INTERRUPTED:
            traceback.print_exc()
            sys.exit(EXIT_FAILED)
        render.print_error("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except Exception:
        traceback.print_exc()
        sys.exit(EXIT_FAILED)  # and not with 1, which says of `check` that it found damage


def _one_line(message: str) -> str:
    """DuckDB's message without the kind of exception before it and the query text after it."""
    text = message.split("\n\nLINE ")[0]
    text = re.sub(r"^[A-Z][A-Za-z -]* Error: ", "", text)
    return " ".join(text.split())


if __name__ == "__main__":
    main()
