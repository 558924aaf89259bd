"""Plots with matplotlib, small enough to be kept beside a document."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import matplotlib

from rawduck.bench.core import stats
from rawduck.bench.core.case import Case, Kind, Metric, Mode
from rawduck.bench.core.results import Results

matplotlib.use("Agg")
from matplotlib import pyplot

_COLORS = {Kind.OURS: "#d1495b", Kind.STOCK: "#30638e", Kind.YARDSTICK: "#8d99ae"}
_DPI = 90
_MOST_PANELS = 6


def bars_per_case(results: Results, folder: Path, metric: Metric) -> list[Path]:
    """Horizontal bars with standard errors, a panel per case."""
    cases = [case for case in results.cases if results.modes(case)]
    paths = []
    for number, start in enumerate(range(0, len(cases), _MOST_PANELS), 1):
        shown = cases[start : start + _MOST_PANELS]
        heights = [0.6 + 0.3 * len(results.modes(case)) for case in shown]
        figure, panels = pyplot.subplots(
            len(shown), 1, figsize=(8, sum(heights) + 0.5), squeeze=False, height_ratios=heights
        )
        for case, panel in zip(shown, panels[:, 0], strict=True):
            _bars(results, case, metric, panel)
        paths.append(_save(figure, folder / f"{results.experiment}-{number}.png"))
    return paths


def _bars(results: Results, case: Case, metric: Metric, panel) -> None:
    modes = list(reversed(results.modes(case)))
    values = [results.median(case, mode, metric) / metric.divide for mode in modes]
    errors = [_error(results, case, mode, metric) / metric.divide for mode in modes]
    colors = [_COLORS[mode.kind] for mode in modes]
    panel.barh([mode.title for mode in modes], values, xerr=errors, color=colors, capsize=2)
    panel.set_title(case.title, fontsize=9, loc="left")
    panel.set_xlabel(metric.title, fontsize=8)
    panel.tick_params(labelsize=8)


def lines(
    results: Results, path: Path, metric: Metric, x: Mapping[str, float], x_title: str, title: str
) -> Path:
    """A line per mode over the cases named in `x`, with standard errors; both axes logarithmic."""
    figure, panel = pyplot.subplots(figsize=(8, 4.5))
    cases = [case for case in results.cases if case.name in x]
    titles = {mode.name: mode.title for case in cases for mode in results.modes(case)}
    for name, mode_title in titles.items():
        points = [(case, mode) for case in cases if (mode := results.mode(case, name))]
        panel.errorbar(
            [x[case.name] for case, _ in points],
            [results.median(case, mode, metric) / metric.divide for case, mode in points],
            yerr=[_error(results, case, mode, metric) / metric.divide for case, mode in points],
            label=mode_title,
            marker="o",
            markersize=4,
            capsize=2,
        )
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xlabel(x_title)
    panel.set_ylabel(metric.title)
    panel.set_title(title, fontsize=10, loc="left")
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    return _save(figure, path)


def grouped(path: Path, title: str, y_title: str, groups: Mapping[str, Mapping[str, float]]) -> Path:
    """Vertical bars: a group per key, a bar in it per series."""
    figure, panel = pyplot.subplots(figsize=(9, 3.6))
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    width = 0.8 / max(1, len(series))
    for number, name in enumerate(series):
        offsets = [index - 0.4 + width * (number + 0.5) for index in range(len(groups))]
        heights = [values.get(name, math.nan) for values in groups.values()]
        panel.bar(offsets, heights, width, label=name)
    panel.set_xticks(range(len(groups)), list(groups), fontsize=8)
    panel.set_ylabel(y_title)
    panel.set_title(title, fontsize=10, loc="left")
    panel.axhline(1, color="black", linewidth=0.6)
    panel.legend(fontsize=8)
    return _save(figure, path)


def _error(results: Results, case: Case, mode: Mode, metric: Metric) -> float:
    error = stats.standard_error(list(results.series(case, mode, metric).values()))
    return 0 if math.isnan(error) else error


def _save(figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
    return path
