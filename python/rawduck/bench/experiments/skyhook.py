"""`rawduck bench skyhook`: TPC-H on Ceph, by reading ranges, as Skyhook did it, and with SQL in the OSDs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rawduck import tpch
from rawduck.bench.core import stats
from rawduck.bench.core.case import CPU, WALL, Case, Kind, Measurement, Metric, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least
from rawduck.bench.core.report import table
from rawduck.bench.core.results import Results
from rawduck.bench.experiments.ceph_site import CephLoad, CephQuery, CephSite, why_not

OURS, RANGES, SKYHOOK, ALWAYS = "ours", "ranges", "skyhook", "always"

OSD_CPU = Metric("osd_cpu_s", "OSD CPU s")
MOVED = Metric("moved_bytes", "MB moved", 1e6, ",.1f")
SENT = Metric("sent_bytes", "MB on the network", 1e6, ",.1f")
REQUESTS = Metric("requests", "requests", 1, ",.0f")
CALLS = Metric("calls", "class calls", 1, ",.0f")

#: Name, title, and the limit that is put on the network.
_LINKS = (("loopback", "loopback", ""), ("10g", "10 Gbit/s", "10gbit"), ("1g", "1 Gbit/s", "1gbit"))
_QUICK_LINKS = ("loopback", "1g")

#: Queries that move much and answer little, and how much faster they are to be on a link.
_SELECTIVE = (1, 6)
_WANTED = {"10g": 1.4, "1g": 3.0}


def _mode(name: str, title: str, kind: Kind, offload: str) -> Mode:
    return Mode(name, title, kind, {"rados_offload": offload})


MODES = (
    _mode(OURS, "rawduck, decided per scan", Kind.OURS, "auto"),
    _mode(RANGES, "ranged reads", Kind.STOCK, "never"),
    _mode(SKYHOOK, "Skyhook's way", Kind.STOCK, "filters"),
    _mode(ALWAYS, "rawduck, always in the OSDs", Kind.YARDSTICK, "always"),
)


class Skyhook(Experiment):
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
    scale = 1.0
    quick_scale = 0.1
    gib_per_scale = 0.0
    metrics = (WALL, CPU, OSD_CPU, MOVED, SENT, REQUESTS, CALLS)

    def cases(self) -> Iterator[Case]:
        options = self.bench.options
        self._scale = self.bench.scale(self)
        if reason := why_not(options.ceph_conf):
            self.leave_out("everything", reason)
            return
        with CephSite(options.work_dir, options.ceph_conf, options.ceph_pool) as self._site:
            self._load()
            for link in self._links():
                yield from self._cases_on(*link)

    def _links(self) -> Iterator[tuple[str, str, str]]:
        for name, title, rate in _LINKS:
            if rate and (reason := self._site.why_not_limited()):
                self.leave_out(title, reason)
            elif not self.bench.options.quick or name in _QUICK_LINKS:
                yield name, title, rate

    def _cases_on(self, link: str, title: str, rate: str) -> Iterator[Case]:
        reference = tpch.Reference(tpch.default_source(), self._scale)
        for number in tpch.QUERY_NUMBERS:
            query = reference.query(number)
            yield Case(
                f"{link}-q{number:02}",
                f"Query {number}, {title}, scale factor {self._scale:g}",
                {"scale": self._scale, "query": query, "link": link, "threads": self.bench.options.threads},
                list(MODES),
                lambda mode, query=query: self._measure(mode, query),
                lambda: self._site.limit(rate),
                warm_up=not self.bench.options.quick,
            )

    def _load(self) -> None:
        folder = self.bench.options.work_dir / f"tpch-sf{self._scale:g}"
        tpch.generate(folder, self._scale)
        self.bench.run_task(CephLoad(**self._session(), folder=str(folder)))

    def _measure(self, mode: Mode, query: str) -> Measurement:
        return Measurement.of(
            self.bench.run_task(CephQuery(**self._session(), settings=dict(mode.settings), query=query))
        )

    def _session(self) -> dict[str, object]:
        return self._site.session(self._scale, self.bench.options.threads)

    def bars(self, results: Results) -> list[Bar]:
        bars = []
        for link, title, _ in _LINKS:
            ratios = ratios_on(results, link, RANGES)
            if not ratios:
                continue
            worst = min(ratios, key=ratios.get)
            bars.append(at_least(f"{title}, worst query ({worst}) against ranged reads", 0.97, ratios[worst]))
            if link in _WANTED:
                for number in _SELECTIVE:
                    reached = ratios.get(f"q{number:02}")
                    work = f"{title}, query {number} against ranged reads"
                    bars.append(at_least(work, _WANTED[link], reached))
        return bars

    def notes(self, results: Results) -> list[str]:
        notes = []
        for link, title, _ in _LINKS:
            columns = {mode.title: ratios_on(results, link, mode.name) for mode in MODES[1:]}
            columns = {against: ratios for against, ratios in columns.items() if ratios}
            if columns:
                notes += [f"## {title}: speed of rawduck", _speeds(columns), _costs(results, link)]
        return notes

    def plots(self, results: Results, folder: Path) -> list[Path]:
        from rawduck.bench.core import plots

        paths = []
        for link, title, _ in _LINKS:
            ratios = {mode.title: ratios_on(results, link, mode.name) for mode in MODES[1:]}
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
                heading = f"{title}: speed of rawduck (higher is faster; 1 is the same)"
                paths.append(plots.grouped(folder / f"skyhook-{link}.png", heading, "times as fast", groups))
        return paths


def ratios_on(results: Results, link: str, other: str) -> dict[str, float]:
    """Times by which ours is faster than another mode, by query, on a link."""
    ratios = {}
    for case in results.cases:
        name, _, query = case.name.partition("-")
        if name == link:
            ratio, _ = results.compare(case, results.mode(case, OURS), results.mode(case, other), WALL)
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


def _costs(results: Results, link: str) -> str:
    """What all queries together moved and cost on each side, by mode."""
    cases = [case for case in results.cases if case.name.partition("-")[0] == link]
    rows = []
    for mode in MODES:
        if all(results.mode(case, mode.name) for case in cases):
            sums = (_sum(results, cases, mode, metric) for metric in Skyhook.metrics)
            rows.append((mode.title, *sums))
    return table(("medians, all queries", *(f">{metric.title}" for metric in Skyhook.metrics)), rows)


def _sum(results: Results, cases: list[Case], mode: Mode, metric: Metric) -> str:
    medians = [results.median(case, mode, metric) for case in cases]
    return "-" if None in medians else metric.text(sum(medians))
