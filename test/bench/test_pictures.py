"""Plots can be read in grey and at a glance; a report begins with what was found."""

from __future__ import annotations

import itertools

import pytest
from matplotlib import pyplot
from rawduck.bench.core import plots, report
from rawduck.bench.core.case import WALL, Case, Kind, Measurement, Mode
from rawduck.bench.core.experiment import Experiment
from rawduck.bench.core.options import Options
from rawduck.bench.core.results import Results
from rawduck.bench.experiments.ceph import skyhook
from rawduck.bench.experiments.ceph.skyhook import SkyhookModel

MODES = [
    Mode("volume", "rawduck, volume", Kind.OURS),
    Mode("stock", "stock", Kind.STOCK),
    Mode("prefetch", "stock [prefetch]", Kind.STOCK),
    Mode("fio", "fio", Kind.YARDSTICK),
]
SECONDS = {"volume": 1.0, "stock": 2.5, "prefetch": 2.0, "fio": 0.5}


class Scaling(Experiment):
    name, title, text = "scaling", "Scaling", "How it scales."

    def cases(self):
        for threads in (1, 2, 8):
            yield Case(f"threads-{threads}", f"Threads: {threads}", {"n": threads}, MODES, lambda mode: None)


@pytest.fixture
def measured(tmp_path):
    experiment = Scaling(bench=None)
    results = Results(tmp_path, experiment.name, {"host": "here"}, (WALL,), list(experiment.cases()))
    results.open(resume=False, overwrite=True)
    for number, case in enumerate(results.cases):
        for mode in MODES:
            for run in range(3):
                seconds = SECONDS[mode.name] * (1 + 0.01 * run) * (1 + (mode.name == "volume") * number)
                results.add(case, mode, run, Measurement({WALL.name: seconds}))
    return experiment, results


@pytest.fixture
def drawn(monkeypatch):
    """Figures as they are saved."""
    figures = []
    monkeypatch.setattr(pyplot, "close", figures.append)
    yield figures
    monkeypatch.undo()
    pyplot.close("all")


def texts_of(panel) -> list[str]:
    return [text.get_text() for text in panel.texts]


def covers_data(figure) -> bool:
    panel = figure.axes[0]
    return panel.get_legend().get_window_extent().overlaps(panel.get_window_extent())


def test_lines_are_told_apart_without_colours(measured, drawn, tmp_path):
    _, results = measured
    x = {case.name: float(case.name.split("-")[1]) for case in results.cases}
    picture = plots.lines(results, tmp_path / "lines.png", WALL, x, "threads", "Cold scan")
    panel = drawn[0].axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "2", "8"]
    assert not any("$" in label.get_text() for label in panel.get_yticklabels(which="both"))
    looks = {(line.get_marker(), line.get_linestyle()) for line, *_ in panel.containers}
    assert len(looks) == len(MODES)
    assert not covers_data(drawn[0])
    assert "Cold scan: wall s by threads" in picture.text
    assert "Threads: 8: from 0.505 (fio)" in picture.text


@pytest.mark.parametrize("times", [1.1, 1.5, 8, 30, 1000, 100000])
def test_ticks_can_be_read(drawn, tmp_path, times):
    case = Case("threads-1", "Threads: 1", {}, MODES[:2], lambda mode: None)
    results = Results(tmp_path, "scaling", {"host": "here"}, (WALL,), [case])
    results.open(resume=False, overwrite=True)
    for mode, seconds in zip(case.modes, (0.22, 0.22 * times), strict=True):
        results.add(case, mode, 0, Measurement({WALL.name: seconds}))
    plots.lines(results, tmp_path / "lines.png", WALL, {case.name: 1.0}, "threads", "Cold scan")
    panel = drawn[0].axes[0]
    least, most = panel.get_ylim()
    ticks = zip(panel.get_yticks(), panel.get_yticklabels(), strict=True)
    boxes = [label.get_window_extent() for value, label in ticks if least <= value <= most]
    assert 2 <= len(boxes) <= 20
    assert not any(below.overlaps(above) for below, above in itertools.pairwise(boxes))


def test_groups_have_values_and_hatches(drawn, tmp_path):
    groups = {f"q{n:02}": {"against stock": n / 10, "against the best": n / 11} for n in range(1, 23)}
    picture = plots.grouped(tmp_path / "tpch.png", "Speed", "times as fast", groups)
    panel = drawn[0].axes[0]
    assert "2.20" in texts_of(panel)
    assert len(texts_of(panel)) == 44
    assert len({bars[0].get_hatch() for bars in panel.containers}) == 2
    assert not covers_data(drawn[0])
    assert "against stock: from 0.10 (q01) to 2.20 (q22)" in picture.text


def test_bars_have_values_and_hatches(measured, drawn, tmp_path):
    _, results = measured
    (picture,) = plots.bars_per_case(results, tmp_path, WALL)
    panel = drawn[0].axes[0]
    assert {"1.010", "2.525", "2.020", "0.505"} <= set(texts_of(panel))
    assert len({bar.get_hatch() for bar in panel.patches}) == len(Kind)
    assert "Threads: 1: from 0.505 (fio) to 2.525 (stock)" in picture.text


@pytest.mark.parametrize("quick", [False, True])
def test_a_report_begins_with_what_was_found(measured, tmp_path, quick, monkeypatch):
    monkeypatch.setattr(report.machine, "rows", lambda machine: [])
    experiment, results = measured
    options = Options("t", tmp_path, tmp_path, tmp_path, quick=quick)
    lines = report.write(experiment, results, [], options).read_text().splitlines()
    assert lines[0] == "# Scaling"
    assert "1.10 times as well as the best mode of stock DuckDB (geometric mean of 3 cases)" in lines[2]
    assert "least in “Threads: 8” (0.67), most in “Threads: 1” (2.00)." in lines[2]
    assert lines[2].startswith("A quick run, with too little data" if quick else "By wall s, rawduck")
    picture = next(line for line in lines if line.startswith("!["))
    assert "stock (prefetch)" not in picture.split("](")[1]
    assert picture.endswith("](scaling-1.png)")
    assert "Bars of wall s." in picture


def test_nothing_to_compare(measured, tmp_path):
    experiment, results = measured
    results.cases[:] = []
    assert "there is nothing" in report.finding(experiment, results, quick=False)


def test_a_report_of_repeated_queries_in_some_modes(tmp_path):
    """--modes left one of those out that a repeated query is compared in."""
    experiment = SkyhookModel(bench=None)
    site = experiment.sites[0].name
    cases = [
        Case(f"{site}-q01", "Query 1", {}, list(skyhook.MODES), lambda mode: None),
        Case(f"repeated_{site}-q01", "Query 1 again", {}, list(skyhook.REPEATED_MODES), lambda mode: None),
    ]
    results = Results(tmp_path, experiment.name, {"host": "here"}, experiment.metrics, cases)
    results.open(resume=False, overwrite=True)
    seconds = {skyhook.OURS: 1.0, skyhook.RANGES: 2.0}
    for case in cases:
        for mode in case.modes:
            if mode.name in seconds:
                measured = {metric.name: seconds[mode.name] for metric in experiment.metrics}
                results.add(case, mode, 0, Measurement(measured))
    notes = "\n".join(experiment.notes(results))
    assert "a query that ran just before" in notes
    assert "ranged reads: always" not in notes
    assert notes.count("2.00") >= 2
