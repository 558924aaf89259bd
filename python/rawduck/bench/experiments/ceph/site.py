"""TPC-H on a Ceph cluster: the cluster, the data, and queries with what they cost on each side."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

import rawduck
from rawduck import tpch
from rawduck.ceph import cluster as ceph_cluster
from rawduck.ceph import network
from rawduck.ceph.cluster import MONITOR, Cluster, class_directory
from rawduck.ceph.cluster import Options as ClusterOptions
from rawduck.ceph.model_hosts import ModelHost, ModelHosts, shares_fit
from rawduck.ceph.network import PrivateNetwork
from rawduck.measuring.measure import Result, Stopwatch
from rawduck.measuring.process_tree import tree_cpu_seconds
from rawduck.paths import quote

OWN_POOL = "tpch"
_OSDS = 3
#: As many as a cluster has whose objects are spread well.
_GROUPS_PER_OSD = 32


@dataclass
class CephSession:
    """How a measuring process gets at the data. All of it is plain data."""

    conf: str
    keyring: str = ""
    #: Of a private network; empty for that of the machine.
    network: str = ""
    #: Of a scale model; its network is entered as well.
    host: ModelHost | None = None
    #: Below it every table has a prefix of its own.
    prefix: str = ""
    threads: int | None = None
    #: OSDs on this machine, whose CPU time is taken too.
    osd_pids: list[int] = field(default_factory=list)

    def open(self) -> duckdb.DuckDBPyConnection:
        """A connection on which the tables of TPC-H are views of objects."""
        if self.host:
            self.host.join()
        if self.network:
            network.enter(self.network)
        config = {} if self.threads is None else {"threads": self.threads}
        connection = rawduck.connect(config=config, ceph=True)
        connection.execute("SET enable_progress_bar = false")
        keyring = f", KEYRING {quote(self.keyring)}" if self.keyring else ""
        connection.execute(f"CREATE SECRET (TYPE rados, CONF {quote(self.conf)}{keyring})")
        return connection


@dataclass
class CephLoad(CephSession):
    """Puts Parquet files of TPC-H into the pool, in objects of the size that COPY gives them."""

    folder: str = ""

    def perform(self) -> Result:
        with self.open() as connection:
            for table in tpch.TABLES:
                source = quote(str(tpch.parquet_path(Path(self.folder), table)))
                target = quote(f"{self.prefix}/{table}")
                connection.execute(f"COPY (FROM {source}) TO {target} (FORMAT parquet, OVERWRITE)")
        return Result()


@dataclass
class CephQuery(CephSession):
    """One query, with what it moved and what it cost the client and the OSDs."""

    settings: dict[str, str] = field(default_factory=dict)
    query: str = ""
    #: Whether it runs once before what is measured.
    repeated: bool = False

    def perform(self) -> Result:
        with self.open() as connection:
            for name, value in self.settings.items():
                connection.execute(f"SET {name} = {quote(value)}")
            for table in tpch.TABLES:
                source = quote(f"{self.prefix}/{table}/*")
                connection.execute(f"CREATE VIEW {table} AS FROM read_parquet({source})")
            if self.repeated:
                connection.execute(self.query).fetchall()
            connection.execute("CALL rados_reset_stats()")
            sent, osd_cpu = network.transferred_bytes(), tree_cpu_seconds(self.osd_pids)
            with Stopwatch() as watch:
                rows = connection.execute(self.query).fetchall()
            osd_cpu = tree_cpu_seconds(self.osd_pids) - osd_cpu
            sent = network.transferred_bytes() - sent
            moved, requests, calls = connection.execute(
                "SELECT sum(bytes)::BIGINT, sum(requests)::BIGINT, "
                "sum(requests) FILTER (WHERE operation = 'exec')::BIGINT FROM rados_stats()"
            ).fetchone()
        values = {"moved_bytes": moved, "requests": requests, "calls": calls}
        if self.osd_pids:
            values["osd_cpu_s"] = osd_cpu
        if self.network:
            values["sent_bytes"] = sent
        return watch.result(rows=rows, values=values)


def why_not(conf: str) -> str:
    """Why nothing can be measured on Ceph here, or an empty string. `conf`: of a given cluster."""
    try:
        rawduck.extension_path(ceph=True)
    except rawduck.RawduckError as error:
        return str(error)
    return "" if conf else ceph_cluster.why_not()


class CephSite:
    """A cluster to measure on; a context manager. Its own one lies in a private network where that can be."""

    def __init__(self, work_dir: Path, conf: str, pool: str) -> None:
        self._work_dir = work_dir
        self._given = (conf, pool)
        self._network: PrivateNetwork | None = None
        self._cluster: Cluster | None = None
        self._stack = ExitStack()

    def __enter__(self) -> CephSite:
        conf, _ = self._given
        with ExitStack() as stack:
            if not conf:
                self._start_own(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_own(self, stack: ExitStack) -> None:
        if not PrivateNetwork.why_not():
            self._network = stack.enter_context(PrivateNetwork())
        folder = self._make_folder(stack)
        self._start(stack, Cluster(folder, self._network.wrapper if self._network else ()), _OSDS)

    def _make_folder(self, stack: ExitStack) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="ceph-", dir=self._work_dir))
        stack.callback(_remove_empty, folder)
        return folder / "c"

    def _start(self, stack: ExitStack, cluster: Cluster, osds: int) -> None:
        self._cluster = cluster
        stack.callback(self._take_down)
        cluster.up(ClusterOptions(osds=osds), class_directory())
        cluster.create_pool(OWN_POOL, groups=_GROUPS_PER_OSD * osds)

    def _take_down(self) -> None:
        if self._cluster and self._cluster.exists:
            self._cluster.down()

    @property
    def own(self) -> bool:
        return self._cluster is not None

    def why_not_limited(self) -> str:
        """Why the network cannot be made slower, or an empty string."""
        return "" if self._network else PrivateNetwork.why_not() or "the cluster is not the benchmark's own"

    def limit(self, rate: str) -> None:
        """See PrivateNetwork.limit; without a private network there is nothing to lift either."""
        if self._network:
            self._network.limit(rate)

    def session(self, scale: float, threads: int | None) -> dict[str, object]:
        """What every task needs, as keyword arguments."""
        conf, pool = self._given
        names = self._cluster.daemon_names()[1:] if self._cluster else []
        return {
            "conf": str(self._cluster.conf) if self._cluster else conf,
            "network": self._network.path if self._network else "",
            "prefix": f"rados://{pool or OWN_POOL}/rawduck-bench/tpch-sf{scale:g}",
            "threads": threads,
            "osd_pids": [pid for name in names if (pid := self._cluster.daemon(name).pid)],
        }


#: Of the scale model, in processors: a client of two and OSDs of one, at a fifth of their speed.
MODEL_SLOWER = 5
_CLIENT, _CLIENT_SHARE, _OSD_SHARE = "client", 0.4, 0.2


class ModelSite(CephSite):
    """A scale model: every OSD and the client have a host of their own, with a share of a processor and a
    link. The monitor has what it needs."""

    def __init__(self, work_dir: Path, osds: int) -> None:
        super().__init__(work_dir, "", "")
        self._osds = osds
        self._hosts: ModelHosts

    @staticmethod
    def why_not(osds: int) -> str:
        """Why there can be none on this machine; empty when there can."""
        return ModelHosts.why_not() or (
            "" if shares_fit(_shares(osds)) else f"this machine has too few processors for {osds} OSDs"
        )

    def _start_own(self, stack: ExitStack) -> None:
        self._hosts = stack.enter_context(ModelHosts(_shares(self._osds)))
        daemons = {name: host for name, host in self._hosts.hosts.items() if name != _CLIENT}
        self._start(stack, Cluster(self._make_folder(stack), hosts=daemons), self._osds)

    def limit(self, rate: str) -> None:
        self._hosts.limit(rate)

    def session(self, scale: float, threads: int | None) -> dict[str, object]:
        client = self._hosts.hosts[_CLIENT]
        # DuckDB would take the client's share for one processor.
        session = super().session(scale, threads or round(_CLIENT_SHARE * MODEL_SLOWER))
        return {**session, "network": client.network, "host": client}


def _shares(osds: int) -> dict[str, float | None]:
    return {MONITOR: None, _CLIENT: _CLIENT_SHARE, **{f"osd.{number}": _OSD_SHARE for number in range(osds)}}


def _remove_empty(folder: Path) -> None:
    folder.rmdir()
