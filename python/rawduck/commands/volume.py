"""`rawduck format`, `grow`, `info`, `ls`, `trim` and `check`."""

from __future__ import annotations

import sys
from typing import Annotated

import duckdb
import typer

import rawduck
from rawduck import consent, paths, render, volumes
from rawduck.commands.options import AgreesToForce, Csv, Json, Target
from rawduck.commands.progress import in_one_piece, run_interruptible

EXIT_DAMAGED = 1
# Of what nvme_trim says of a regular file.
_A_SETTING = "nvme_deallocate = 'on'"


def register(app: typer.Typer) -> None:
    app.command("format", epilog="Example: rawduck format /data/disk.rawduck --size 8G --label sales")(
        format_target
    )
    app.command("grow", epilog="Example: rawduck grow /data/disk.rawduck --size 200G")(grow)
    app.command("info", epilog="Example: rawduck info /dev/nvme0n1")(info)
    app.command("ls", epilog="Example: rawduck ls /data/disk.rawduck --extents")(list_files)
    app.command("trim", epilog="Example: rawduck trim /dev/nvme0n1")(trim)
    app.command("check", epilog="Example: rawduck check /dev/nvme0n1 && echo healthy")(check)


def format_target(
    target: Target,
    others: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MORE_TARGETS",
            help="The volume is striped over all of them; any of them names it afterwards.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        str, typer.Option(help="Size of each regular file or of memory, such as 8G; a device is used whole.")
    ] = "",
    lba_size: Annotated[
        int,
        typer.Option(
            help="512 or 4096; by default the device's own, but 4096 for files and 512e disks.",
            show_default=False,
        ),
    ] = 0,
    label: Annotated[str, typer.Option(help="A name of up to 63 bytes.")] = "",
    chunk: Annotated[
        str,
        typer.Option(
            help="With more targets: how much lies on one before the next one's turn, 16K to 16M; 256K by "
            "default.",
            show_default=False,
        ),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Destroy what lies on the target, after saying what and asking.")
    ] = False,
    yes: AgreesToForce = False,
    json: Json = False,
) -> None:
    """Write an empty volume. Refuses a target that holds anything, and says what."""
    target = paths.absolute_target(target)
    stripe_with = [paths.absolute_target(other) for other in others or []]
    options = {
        "size": size,
        "lba_size": lba_size,
        "label": label,
        "chunk": chunk,
        "stripe_with": stripe_with,
    }
    with rawduck.connect() as connection:
        if force:
            agreed = consent.to_format(connection, [target, *stripe_with], yes)
            options |= {"force": True, "agreed": agreed}
        with in_one_piece():
            _print_formatted(volumes.format_volume(connection, target, **options), len(stripe_with), json)
    if target.startswith(paths.MEMORY_PREFIX):
        render.print_note(f"{target} is in the memory of this command, and gone with it")


def _print_formatted(row: render.Row, others: int, json: bool) -> None:
    if json:
        render.print_json(row)
        return
    striped = f" and {others} more" if others else ""
    render.console.print(
        f"Formatted {render.text(row['target'])}{striped}: {render.size(row['capacity'])}, "
        f"LBAs of {row['lba_size']} bytes, UUID {row['uuid']}",
        soft_wrap=True,
    )


def grow(
    target: Target,
    size: Annotated[
        str, typer.Option(help="Make a regular file that large before, such as 200G; with all of its space.")
    ] = "",
    json: Json = False,
) -> None:
    """Make a volume as large as its target, which was made larger."""
    query, values = "SELECT * FROM nvme_grow(?)", [paths.absolute_target(target)]
    if size:
        query, values = "SELECT * FROM nvme_grow(?, size := ?)", [*values, size]
    with rawduck.connect() as connection, in_one_piece():
        (row,) = render.rows(connection, query, values)
        if json:
            render.print_json(row)
        else:
            _print_grown(connection, row)


def _print_grown(connection: duckdb.DuckDBPyConnection, row: render.Row) -> None:
    name, capacity = render.text(row["target"]), render.size(row["capacity"])
    done = f"Grown {name}: {capacity}, {render.size(row['added'])} more than before"
    if row["added"]:
        render.console.print(done, soft_wrap=True)
        return
    members = volumes.volume_info(connection, row["target"])["members"]
    limit = "the smallest of its targets allows" if members else "its target"
    render.console.print(f"Not grown: {name} is as large as {limit} already: {capacity}", soft_wrap=True)


def info(target: Target, json: Json = False) -> None:
    """Show a volume: identity, space, engine, and the state of its metadata."""
    with rawduck.connect() as connection:
        row = volumes.volume_info(connection, paths.absolute_target(target))
        fdp = volumes.placement(connection, row)
    if json:
        render.print_json({**row, "fdp": fdp})
        return
    render.console.print(render.fields(_info_fields(row)))
    if fdp:
        render.console.print()
        render.console.print(placement_table(fdp))
        render.console.print(_device_statistics(fdp[0]))


def _log(row: render.Row) -> str:
    # The high half of an epoch is the number of the mount.
    epoch = f"{row['epoch'] >> 32}.{row['epoch'] & 0xFFFFFFFF}"
    return f"epoch {epoch}, {row['log_records']} records, {render.size(row['log_bytes'])}"


def _capacity(row: render.Row) -> str:
    growable = row["growable"]
    rest = f"; the target has {render.size(growable)} more, which `rawduck grow` would use"
    return render.size(row["capacity"]) + (rest if growable else "")


def _info_fields(row: render.Row) -> list[tuple[str, str]]:
    pairs = [
        ("target", row["target"]),
        ("UUID", str(row["uuid"])),
        ("label", row["label"] or "-"),
        *[(f"member {number}", member) for number, member in enumerate(row["members"])],
        *([("chunk", render.size(row["chunk"]))] if row["members"] else []),
        ("capacity", _capacity(row)),
        ("used", f"{render.size(row['used'])}, and {render.size(row['metadata_bytes'])} for metadata"),
        ("free", f"{render.size(row['free'])}, largest extent {render.size(row['largest_free_extent'])}"),
        ("files", f"{row['files']} in {row['extents']} extent{'' if row['extents'] == 1 else 's'}"),
        ("LBA size", f"{row['lba_size']} bytes"),
        ("buffer alignment", f"{row['memory_alignment']} bytes"),
        ("write cache", "volatile" if row["volatile_write_cache"] else "none"),
        ("placement", row["placement"]),
        ("engine", f"{row['engine']} ({row['engine_reason']})"),
        ("queues", f"{row['queue_mode']}, depth {row['queue_depth']}"),
        ("metadata log", _log(row)),
        ("mounted in", f"{row['mount_ms']:.1f} ms"),
    ]
    pairs += [("warning", row["warning"])] if row["warning"] else []
    pairs += [("refuses writes", row["poisoned"])] if row["poisoned"] else []
    return pairs


def placement_table(handles: list[render.Row]):
    table = render.table(
        "placement", "reclaim unit handle", "classes", ">left in its reclaim unit", title="FDP"
    )
    for handle in handles:
        classes = ", ".join(handle["classes"]) or "-"
        numbers = (str(handle["placement"]), str(handle["reclaim_unit_handle"]))
        table.add_row(*numbers, classes, render.size(handle["remaining"]))
    return table


def _device_statistics(row: render.Row) -> str:
    amplification = row["write_amplification"]
    written = (
        f"{render.size(row['device_host_bytes'])} by hosts, {render.size(row['device_media_bytes'])} to media"
    )
    return f"device: {written}, {render.size(row['device_erased_bytes'])} erased" + (
        f", write amplification {amplification:.3f}" if amplification else ""
    )


def list_files(
    target: Target,
    json: Json = False,
    csv: Csv = False,
    extents: Annotated[bool, typer.Option("--extents", "-e", help="Show where each extent lies.")] = False,
) -> None:
    """List the files on a volume, and its snapshots."""
    target = paths.absolute_target(target)
    with rawduck.connect() as connection:
        found = volumes.volume_files(connection, target)
        snapshots = volumes.volume_snapshots(connection, target)
    if render.print_for_scripts(found, json, csv):
        return
    render.console.print(files_table([file for file in found if not file["snapshot"]]))
    if snapshots:
        render.console.print()
        render.console.print(snapshots_table(snapshots))
    if extents:
        render.console.print()
        render.console.print(extents_table(found))


def files_table(files: list[render.Row]):
    table = render.table("name", "kind", ">size", ">allocated", ">extents", "modified (UTC)")
    for file in files:
        modified = file["modified"].strftime("%Y-%m-%d %H:%M:%S") if file["modified"] else "-"
        sizes = (render.size(file["size"]), render.size(file["allocated"]))
        table.add_row(render.text(file["name"]), file["kind"].lower(), *sizes, str(file["extents"]), modified)
    return table


def snapshots_table(snapshots: list[render.Row]):
    table = render.table("snapshot", ">size", ">held", "created (UTC)")
    for snapshot in snapshots:
        sizes = (render.size(snapshot["size"]), render.size(snapshot["held"]))
        name = f"{snapshot['file']}@{snapshot['snapshot']}"
        table.add_row(render.text(name), *sizes, snapshot["created"].strftime("%Y-%m-%d %H:%M:%S"))
    return table


def extents_table(files: list[render.Row]):
    table = render.table("file", ">file offset", ">first LBA", ">last LBA", ">LBAs")
    for file in files:
        for extent in file["extent_list"]:
            first, count = extent["lba"], extent["lba_count"]
            numbers = (extent["file_offset"], first, first + count - 1, count)
            table.add_row(render.text(file["name"]), *(f"{number:,}" for number in numbers))
    return table


def trim(
    target: Target,
    deallocate: Annotated[
        bool,
        typer.Option(
            "--deallocate", help="Also of a regular file, which then takes no space where nothing lies."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Tell the device which space of a volume is free, so that it need not keep it."""
    with rawduck.connect(config={"nvme_deallocate": "on"} if deallocate else {}) as connection:
        try:
            (row,) = render.rows(connection, "SELECT * FROM nvme_trim(?)", [paths.absolute_target(target)])
        except duckdb.NotSupportedError as error:
            if _A_SETTING not in str(error):
                raise
            raise rawduck.RawduckError(str(error).replace(_A_SETTING, "--deallocate")) from error
    if json:
        render.print_json(row)
        return
    render.console.print(f"Trimmed {render.size(row['trimmed'])}")


def check(
    target: Target,
    json: Json = False,
    csv: Csv = False,
    contents: Annotated[
        bool,
        typer.Option(
            "--contents", help="Read all databases, snapshots and logs, too, and verify DuckDB's checksums."
        ),
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what leaves no doubt, after saying what and asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair without asking.")] = False,
) -> None:
    """Verify checksums, reachability and overlap of everything on a volume, without writing to it.

    The exit code is 0 when the volume is sound, 1 when it is damaged, 2 when it could not be checked.
    """
    render.require_one_format(json, csv)
    target = paths.absolute_target(target)
    with rawduck.connect() as connection:
        query = "SELECT * FROM nvme_check(?, contents := ?)"
        findings = run_interruptible(connection, query, [target, contents])
        if repair and _agreed(
            [finding["repair"] for finding in findings if finding["repair"]], yes, json or csv
        ):
            repair_query = "SELECT * FROM nvme_check(?, repair := true)"
            with in_one_piece():
                findings = render.rows(connection, repair_query, [target])
                if not contents:
                    _print_findings(findings, json, csv)
            if contents:  # which may take long
                done = [finding for finding in findings if finding["what"] == "repair"]
                findings = run_interruptible(connection, query, [target, True])
                findings[:0] = done
                _print_findings(findings, json, csv)
        else:
            _print_findings(findings, json, csv)
    damaged = any(finding["severity"] == "error" for finding in findings)
    if damaged:
        raise typer.Exit(EXIT_DAMAGED)


def _agreed(steps: list[str], yes: bool, for_script: bool) -> bool:
    """Says what a repair would do and asks for leave."""
    if not steps:
        if not for_script:
            render.console.print("There is nothing to repair, or nothing that could be without a guess.")
        return False
    if yes:
        return True
    if for_script or not sys.stdin.isatty():
        raise rawduck.RawduckError(f"a repair would {'; '.join(steps)}. To do it, say --yes")
    render.print_note("The repair would:")
    for step in steps:
        render.print_note(f"  {step}")
    return bool(consent.answer(typer.confirm, "Do it?"))


def _print_findings(findings: render.Rows, json: bool, csv: bool) -> None:
    if render.print_for_scripts(findings, json, csv):
        return
    colors = {"ok": "green", "warning": "yellow", "error": "bold red"}
    table = render.table("severity", "what", "detail")
    for finding in findings:
        severity = finding["severity"]
        table.add_row(
            f"[{colors[severity]}]{severity}[/]",
            render.text(finding["what"]),
            render.text(finding["detail"] or ""),
        )
    render.console.print(table)
    errors = sum(finding["severity"] == "error" for finding in findings)
    warnings = sum(finding["severity"] == "warning" for finding in findings)
    verdict = f"[bold red]damaged: {errors} errors[/]" if errors else "[green]sound[/]"
    render.console.print(f"{verdict}{f', {warnings} warnings' if warnings else ''}")
