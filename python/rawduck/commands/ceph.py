"""`rawduck ceph`: a Ceph cluster on this machine to try things out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rawduck import render
from rawduck.ceph import cluster as ceph_cluster
from rawduck.ceph.cluster import Cluster
from rawduck.commands.options import Json

Directory = Annotated[Path, typer.Option("--dir", help="Everything of the cluster lies below it.")]

_DIRECTORY = Path("build/ceph")


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="A Ceph cluster on this machine, on 127.0.0.1 only, to try rados:// paths.", no_args_is_help=True
    )
    group.command("up", epilog="Example: rawduck ceph up --osds 3 --copies 2 --pool tpch")(up)
    group.command("status", epilog="Example: rawduck ceph status --json")(status)
    group.command("down", epilog="Example: rawduck ceph down")(down)
    app.add_typer(group, name="ceph")


def up(
    directory: Directory = _DIRECTORY,
    osds: Annotated[
        int, typer.Option(min=1, max=ceph_cluster.OSDS_MAX, help="Storage daemons.")
    ] = ceph_cluster.Options.osds,
    copies: Annotated[
        int, typer.Option(min=1, max=ceph_cluster.OSDS_MAX, help="Copies of every object.")
    ] = ceph_cluster.Options.copies,
    cephx: Annotated[bool, typer.Option("--cephx", help="Clients need a key.")] = False,
    pool: Annotated[
        list[str] | None, typer.Option(help="Make this pool; may be repeated.", show_default=False)
    ] = None,
    class_dir: Annotated[
        Path | None,
        typer.Option(
            help="Object classes to add to the system's in every OSD; by default ours, where it was built.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Make a cluster, or start the one that is there. Needs ceph-mon, ceph-osd and ceph-common."""
    cluster = Cluster(directory)
    wanted = ceph_cluster.Options(osds=osds, copies=copies, cephx=cephx)
    with render.console.status("Starting the cluster …"):
        cluster.up(
            None if cluster.exists and wanted == ceph_cluster.Options() else wanted,
            class_dir or ceph_cluster.class_directory(),
        )
        for name in set(pool or []) - set(cluster.pools()):
            cluster.create_pool(name)
    _print_status(cluster)
    keyring = f", KEYRING '{cluster.keyring}'" if cluster.options.cephx else ""
    render.console.print(
        f"\nIn DuckDB: CREATE SECRET (TYPE rados, CONF '{cluster.conf}'{keyring});",
        soft_wrap=True,
        markup=False,
    )


def status(directory: Directory = _DIRECTORY, json: Json = False) -> None:
    """Show the daemons and pools of the cluster."""
    cluster = Cluster(directory)
    if json:
        render.print_json({"conf": str(cluster.conf), "daemons": _daemons(cluster), "pools": _pools(cluster)})
    else:
        _print_status(cluster)


def down(
    directory: Directory = _DIRECTORY,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the data; `up` starts the cluster again.")
    ] = False,
) -> None:
    """Stop the cluster, and remove its directory with all data in it."""
    Cluster(directory).down(keep=keep)
    render.console.print(f"{'Stopped' if keep else 'Removed'} {directory}", soft_wrap=True, markup=False)


def _daemons(cluster: Cluster) -> list[render.Row]:
    daemons = [cluster.daemon(name) for name in cluster.daemon_names()]
    return [{"name": d.name, "pid": d.pid, "memory_bytes": d.memory_bytes} for d in daemons]


def _pools(cluster: Cluster) -> list[str]:
    """None where there is no monitor to ask."""
    return cluster.pools() if cluster.daemon(ceph_cluster.MONITOR).running else []


def _print_status(cluster: Cluster) -> None:
    table = render.table("daemon", ">process", ">memory")
    for daemon in _daemons(cluster):
        table.add_row(
            daemon["name"], str(daemon["pid"] or "[red]down[/]"), render.size(daemon["memory_bytes"])
        )
    render.console.print(table)
    render.console.print(f"pools: {', '.join(_pools(cluster)) or 'none'}", soft_wrap=True, markup=False)
    render.console.print(f"configuration: {cluster.conf}", soft_wrap=True, markup=False)
