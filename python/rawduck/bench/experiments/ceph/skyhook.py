"""`rawduck bench skyhook` and `skyhook-model`: TPC-H on Ceph, by reading ranges, as Skyhook did it, and with
SQL in the OSDs; on this machine as it is, and as a scale model of a larger site."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rawduck import tpch
from rawduck.bench.core import stats
from rawduck.bench.core.case import CPU, WALL, Case, Kind, Measurement, Metric, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.report import table
from rawduck.bench.core.results import Results
from rawduck.bench.experiments.ceph.site import (
    MODEL_SLOWER,
    CephLoad,
    CephQuery,
    CephSite,
    ModelSite,
    why_not,
)

OURS, RANGES, SKYHOOK, ALWAYS = "ours", "ranges", "skyhook", "always"

OSD_CPU = Metric("osd_cpu_s", "OSD CPU s")
MOVED = Metric("moved_bytes", "MB moved", 1e6, ",.1f")
SENT = Metric("sent_bytes", "MB on the network", 1e6, ",.1f")
REQUESTS = Metric("requests", "requests", 1, ",.0f")
CALLS = Metric("calls", "class calls", 1, ",.0f")

#: Queries that move much and answer little.
_SELECTIVE = (1, 6)


@dataclass(frozen=True)
class Site:
    """Where the queries run: OSDs, and the network between them and the client."""

    #: Of its cases, before the first dash.
    name: str
    title: str
    #: The limit that is put on the network.
    rate: str
    #: How many times as fast as ranged reads the queries are to be: the worst one, all of them together, and
    #: each of the selective ones.
    worst: float = 0.97
    mean: float | None = None
    selective: float | None = None
    quick: bool = True


_LINKS = (
    Site("loopback", "loopback", ""),
    Site("10g", "10 Gbit/s", "10gbit", selective=1.4, quick=False),
    Site("1g", "1 Gbit/s", "1gbit", selective=3.0),
)


#: Name, title and rados_offload of each mode.
_MODES = (
    (OURS, "rawduck, decided per scan", Kind.OURS, "auto"),
    (RANGES, "ranged reads", Kind.STOCK, "never"),
    (SKYHOOK, "Skyhook's way", Kind.STOCK, "filters"),
    (ALWAYS, "rawduck, always in the OSDs", Kind.YARDSTICK, "always"),
)


def _modes(*, cache: bool) -> tuple[Mode, ...]:
    return tuple(
        Mode(name, title, kind, {"rados_offload": offload, "rados_offload_cache": str(cache).lower()})
        for name, title, kind, offload in _MODES
    )


#: The queries' answers are computed in every run: what the OSDs kept would be compared with reading.
MODES = _modes(cache=False)
#: Of the cases that measure what is kept.
REPEATED_MODES = _modes(cache=True)
REPEATED = "repeated"


def _case_name(site: Site, number: int) -> str:
    return f"{site.name}-q{number:02}"


def _repeated_case_name(site: Site, number: int) -> str:
    """Not below the site's own name: its ratios and costs are those of queries that are computed."""
    return f"{REPEATED}_{_case_name(site, number)}"


class _TpchOnCeph(Experiment):
    """The 22 queries on each site, which are warm: the OSDs have read the objects before."""

    scale = 1.0
    quick_scale = 0.1
    gib_per_scale = 0.0
    metrics = (WALL, CPU, OSD_CPU, MOVED, SENT, REQUESTS, CALLS)
    sites: tuple[Site, ...]
    #: With --quick.
    quick_queries: Iterable[int] = tpch.QUERY_NUMBERS
    _site: CephSite

    def cases(self) -> Iterator[Case]:
        self._scale = self.bench.scale(self)
        if reason := why_not(self.bench.options.ceph_conf):
            self.leave_out("everything", reason)
            return
        self._queries = self.bench.tpch_queries(self, self._scale)
        if self._queries:
            yield from self._cases_on_sites()

    def _cases_on_sites(self) -> Iterator[Case]:
        raise NotImplementedError

    def _cases_on(self, site: Site) -> Iterator[Case]:
        for number in self.quick_queries if self.bench.options.quick else tpch.QUERY_NUMBERS:
            yield self._case(site, number, repeated=False)
        for number in _SELECTIVE:
            yield self._case(site, number, repeated=True)

    def _case(self, site: Site, number: int, *, repeated: bool) -> Case:
        query = self._queries[number]
        name = _repeated_case_name(site, number) if repeated else _case_name(site, number)
        again = " again" if repeated else ""
        return Case(
            name,
            f"Query {number}{again}, {site.title}, scale factor {self._scale:g}",
            {
                "scale": self._scale,
                "query": query,
                "site": site.name,
                "threads": self.bench.options.threads,
                **({REPEATED: True} if repeated else {}),
            },
            list(REPEATED_MODES if repeated else MODES),
            lambda mode: self._measure(mode, query, repeated),
            lambda: self._site.limit(site.rate),
            warm_up=not self.bench.options.quick,
        )

    def _load(self) -> None:
        folder = self.bench.options.work_dir / f"tpch-sf{self._scale:g}"
        tpch.generate(folder, self._scale)
        self.bench.run_task(CephLoad(**{**self._session(), "host": None}, folder=str(folder)))

    def _measure(self, mode: Mode, query: str, repeated: bool) -> Measurement:
        task = CephQuery(**self._session(), settings=dict(mode.settings), query=query, repeated=repeated)
        return Measurement.of(self.bench.run_task(task))

    def _session(self) -> dict[str, object]:
        return self._site.session(self._scale, self.bench.options.threads)

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for site in self.sites:
            ratios = ratios_on(results, site.name, RANGES)
            if not ratios:
                continue
            worst = min(ratios, key=ratios.get)
            bars.append(
                at_least(
                    f"{site.title}, worst query ({worst}) against ranged reads", site.worst, ratios[worst]
                )
            )
            if site.mean is not None:
                mean = stats.geometric_mean(list(ratios.values()))
                bars.append(at_least(f"{site.title}, all queries against ranged reads", site.mean, mean))
            if site.selective is not None:
                for number in _SELECTIVE:
                    reached = ratios.get(f"q{number:02}")
                    work = f"{site.title}, query {number} against ranged reads"
                    bars.append(at_least(work, site.selective, reached))
        return bars

    def notes(self, results: Results) -> list[str]:
        notes = []
        for site in self.sites:
            columns = {mode.title: ratios_on(results, site.name, mode.name) for mode in MODES[1:]}
            columns = {against: ratios for against, ratios in columns.items() if ratios}
            if columns:
                notes += [f"## {site.title}: speed of rawduck", _speeds(columns), _costs(results, site.name)]
            repeated = {
                mode: ratios_on(results, f"{REPEATED}_{site.name}", RANGES, mode) for mode in (OURS, ALWAYS)
            }
            if repeated[OURS]:
                titles = {mode.name: f"ranged reads: {mode.title}" for mode in REPEATED_MODES}
                columns = {titles[mode]: ratios for mode, ratios in repeated.items() if ratios}
                notes += [f"## {site.title}: a query that ran just before", _speeds(columns)]
        return notes

    def plots(self, results: Results, folder: Path) -> list[Picture]:
        from rawduck.bench.core import plots

        paths = []
        for site in self.sites:
            ratios = {mode.title: ratios_on(results, site.name, mode.name) for mode in MODES[1:]}
            queries = dict.fromkeys(name for column in ratios.values() for name in column)
            if queries:
                groups = {
                    name: {
                        f"against {against}": column[name]
                        for against, column in ratios.items()
                        if name in column
                    }
                    for name in queries
                }
                heading = f"{site.title}: speed of rawduck (higher is faster; 1 is the same)"
                path = folder / f"{self.name}-{site.name}.png"
                paths.append(plots.grouped(path, heading, "times as fast", groups))
        return paths


class Skyhook(_TpchOnCeph):
    name = "skyhook"
    title = "TPC-H on Ceph"
    text = (
        "The tables of TPC-H lie in a pool as Parquet objects of 8 to 16 MB. Every query runs in a process "
        "of its own, on objects that the OSDs have read before, so that what is compared is the way from the "
        "OSD to the answer: reading ranges of objects with DuckDB's own Parquet reader, filtering and "
        "projecting in the OSD as Skyhook did, and pushing SQL into the OSD where that is expected to pay. "
        "Client and cluster share one machine, and a private network whose speed is limited. OSD CPU is that "
        "of all OSDs together."
    )
    sites = _LINKS

    def _cases_on_sites(self) -> Iterator[Case]:
        options = self.bench.options
        with CephSite(options.work_dir, options.ceph_conf, options.ceph_pool) as self._site:
            self._load()
            for link in self.sites:
                if link.rate and (reason := self._site.why_not_limited()):
                    self.leave_out(link.title, reason)
                elif link.quick or not options.quick:
                    yield from self._cases_on(link)


@dataclass(frozen=True)
class ModelledSite(Site):
    osds: int = 1


def _model_sites() -> Iterator[ModelledSite]:
    """All of the model's sites; those with the same OSDs follow each other. The bars are for six OSDs."""
    for osds in (1, 3, 6):
        all_osds = f"{osds} OSD" + ("s" if osds > 1 else "")
        bars = ((1.0, None), (1.3, None), (2.0, 3.0)) if osds == 6 else ((None, None),) * 3
        links = (("fast", "no limit", ""), ("10g", "10 Gbit/s", "2gbit"), ("1g", "1 Gbit/s", "200mbit"))
        for (link, link_title, rate), (mean, selective) in zip(links, bars, strict=True):
            yield ModelledSite(
                f"{link}x{osds}",
                f"model of {all_osds}, {link_title}",
                rate,
                mean=mean,
                selective=selective,
                quick=osds == 3 and link == "1g",
                osds=osds,
            )


class SkyhookModel(_TpchOnCeph):
    name = "skyhook-model"
    title = "TPC-H on Ceph, a scale model"
    text = (
        "As `skyhook`, on a scale model: the client and every OSD have a host of their own, which is a "
        "network namespace with a link of its own and a control group with a share of a processor. All hosts "
        f"together have less than this machine has. Everything is {MODEL_SLOWER} times as slow as on the "
        "site that it is a model of: the client has 0.4 processors for 2, an OSD 0.2 for 1, and a link 2 "
        "Gbit/s for 10. The names of links below are those of the site; times are those of the model. It is "
        "a model: the hosts share caches and memory bandwidth, the disk is not slowed, and the delay of a "
        "packet is not longer."
    )
    sites = tuple(_model_sites())
    quick_queries = _SELECTIVE

    def _cases_on_sites(self) -> Iterator[Case]:
        options = self.bench.options
        if options.ceph_conf:
            self.leave_out("everything", "a scale model has a cluster of its own (without --ceph-conf)")
            return
        for osds, group in itertools.groupby(self.sites, key=lambda site: site.osds):
            names = {
                site: [
                    *(_case_name(site, number) for number in tpch.QUERY_NUMBERS),
                    *(_repeated_case_name(site, number) for number in _SELECTIVE),
                ]
                for site in group
            }
            chosen = [
                site
                for site, queries in names.items()
                if (site.quick or not options.quick) and any(map(options.wants, queries))
            ]
            if not chosen:
                continue
            if reason := ModelSite.why_not(osds):
                self.leave_out(f"{osds} OSDs", reason)
                continue
            with ModelSite(options.work_dir, osds) as self._site:
                self._load()
                for site in chosen:
                    yield from self._cases_on(site)


def ratios_on(results: Results, site: str, other: str, ours: str = OURS) -> dict[str, float]:
    """Times by which ours is faster than another mode, by query, on a site."""
    ratios = {}
    for case in results.cases:
        name, _, query = case.name.partition("-")
        if name == site:
            ratio, _ = results.compare(case, results.mode(case, ours), results.mode(case, other), WALL)
            if ratio is not None:
                ratios[query] = ratio
    return ratios


def _speeds(columns: dict[str, dict[str, float]]) -> str:
    names = list(dict.fromkeys(name for ratios in columns.values() for name in ratios))
    rows = [
        (name, *(f"{ratios[name]:.2f}" if name in ratios else "-" for ratios in columns.values()))
        for name in names
    ]
    means = (f"{stats.geometric_mean(list(ratios.values())):.2f}" for ratios in columns.values())
    rows.append(("geometric mean", *means))
    return table(("query", *(f">times {title}" for title in columns)), rows)


def _costs(results: Results, site: str) -> str:
    """What all queries together moved and cost on each side, by mode."""
    cases = [case for case in results.cases if case.name.partition("-")[0] == site]
    rows = []
    for mode in MODES:
        if all(results.mode(case, mode.name) for case in cases):
            sums = (_sum(results, cases, mode, metric) for metric in _TpchOnCeph.metrics)
            rows.append((mode.title, *sums))
    return table(("medians, all queries", *(f">{metric.title}" for metric in _TpchOnCeph.metrics)), rows)


def _sum(results: Results, cases: list[Case], mode: Mode, metric: Metric) -> str:
    medians = [results.median(case, mode, metric) for case in cases]
    return "-" if None in medians else metric.text(sum(medians))
