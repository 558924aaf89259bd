"""TPC-H on a Ceph cluster: the cluster, the data, and queries with what they cost on each side."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

import rawduck
from rawduck import tpch
from rawduck.ceph import cluster as ceph_cluster
from rawduck.ceph import network
from rawduck.ceph.cluster import Cluster, class_directory
from rawduck.ceph.cluster import Options as ClusterOptions
from rawduck.ceph.network import PrivateNetwork
from rawduck.measuring.measure import Result, Stopwatch
from rawduck.paths import quote

OWN_POOL = "tpch"
_OSDS = 3


@dataclass
class CephSession:
    """How a measuring process gets at the data. All of it is plain data."""

    conf: str
    keyring: str = ""
    #: Of a private network; empty for that of the machine.
    network: str = ""
    #: Below it every table has a prefix of its own.
    prefix: str = ""
    threads: int | None = None
    #: OSDs on this machine, whose CPU time is taken too.
    osd_pids: list[int] = field(default_factory=list)

    def open(self) -> duckdb.DuckDBPyConnection:
        """A connection on which the tables of TPC-H are views of objects."""
        if self.network:
            network.enter(self.network)
        config = {} if self.threads is None else {"threads": self.threads}
        connection = rawduck.connect(config=config, ceph=True)
        connection.execute("SET enable_progress_bar = false")
        keyring = f", KEYRING {quote(self.keyring)}" if self.keyring else ""
        connection.execute(f"CREATE SECRET (TYPE rados, CONF {quote(self.conf)}{keyring})")
        return connection

    def osd_cpu_seconds(self) -> float:
        """CPU time of the OSDs so far, by the clocks that the kernel has for other processes."""
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self.osd_pids)


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

    def perform(self) -> Result:
        with self.open() as connection:
            for name, value in self.settings.items():
                connection.execute(f"SET {name} = {quote(value)}")
            for table in tpch.TABLES:
                source = quote(f"{self.prefix}/{table}/*")
                connection.execute(f"CREATE VIEW {table} AS FROM read_parquet({source})")
            connection.execute("CALL rados_reset_stats()")
            sent, osd_cpu = network.loopback_bytes(), self.osd_cpu_seconds()
            with Stopwatch() as watch:
                rows = connection.execute(self.query).fetchall()
            osd_cpu, sent = self.osd_cpu_seconds() - osd_cpu, network.loopback_bytes() - sent
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
        wrapper = self._network.wrapper if self._network else ()
        folder = Path(tempfile.mkdtemp(prefix="ceph-", dir=self._work_dir))
        stack.callback(_remove_empty, folder)
        self._cluster = Cluster(folder / "c", wrapper)
        stack.callback(self._take_down)
        self._cluster.up(ClusterOptions(osds=_OSDS), class_directory())
        self._cluster.create_pool(OWN_POOL)

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


def _remove_empty(folder: Path) -> None:
    folder.rmdir()
