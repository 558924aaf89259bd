"""Plots with matplotlib, small enough to be kept beside a document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sized
from pathlib import Path

import matplotlib

from rawduck.bench.core import stats
from rawduck.bench.core.case import Case, Kind, Metric, Mode
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.results import Results

matplotlib.use("Agg")
from matplotlib import pyplot, ticker

# In print, and to those who see no colours, series differ by hatch, marker and dashes.
_COLORS = {Kind.OURS: "#d1495b", Kind.STOCK: "#30638e", Kind.YARDSTICK: "#8d99ae"}
_HATCHES = {Kind.OURS: "", Kind.STOCK: "///", Kind.YARDSTICK: "..."}
_SERIES_COLORS = ("#d1495b", "#30638e", "#edae49", "#00798c", "#6a4c93", "#8d99ae")
_SERIES_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", ":", "-.")
_EDGE = "white"
_DPI = 90
_MOST_PANELS = 6
# Above this many, the values over bars are written upwards.
_MOST_LEVEL_VALUES = 10
# The most of a logarithmic axis by its least: below, there are ticks at round distances, or at every multiple
# of a power of ten.
_NARROW_RANGE = 3
_DENSE_RANGE = 20


def bars_per_case(results: Results, folder: Path, metric: Metric) -> list[Picture]:
    """Horizontal bars with their values and standard errors, a panel per case."""
    cases = [case for case in results.cases if results.modes(case)]
    pictures = []
    for number, start in enumerate(range(0, len(cases), _MOST_PANELS), 1):
        shown = cases[start : start + _MOST_PANELS]
        heights = [0.6 + 0.3 * len(results.modes(case)) for case in shown]
        figure, panels = pyplot.subplots(
            len(shown), 1, figsize=(8, sum(heights) + 0.5), squeeze=False, height_ratios=heights
        )
        for case, panel in zip(shown, panels[:, 0], strict=True):
            _bars(results, case, metric, panel)
        path = _save(figure, folder / f"{results.experiment}-{number}.png")
        pictures.append(Picture(path, _in_words(results, shown, metric)))
    return pictures


def _in_words(results: Results, cases: list[Case], metric: Metric) -> str:
    described = []
    for case in cases:
        values = {mode.title: results.median(case, mode, metric) for mode in results.modes(case)}
        least, most = min(values, key=values.get), max(values, key=values.get)
        range_ = f"from {metric.text(values[least])} ({least}) to {metric.text(values[most])} ({most})"
        described.append(f"{case.title}: {range_}")
    return f"Bars of {metric.title}. " + "; ".join(described)


def _bars(results: Results, case: Case, metric: Metric, panel) -> None:
    modes = list(reversed(results.modes(case)))
    values = [results.median(case, mode, metric) for mode in modes]
    bars = panel.barh(
        [mode.title for mode in modes],
        [value / metric.divide for value in values],
        xerr=[_error(results, case, mode, metric) / metric.divide for mode in modes],
        color=[_COLORS[mode.kind] for mode in modes],
        hatch=[_HATCHES[mode.kind] for mode in modes],
        edgecolor=_EDGE,
        capsize=2,
    )
    panel.bar_label(bars, [metric.text(value) for value in values], padding=4, fontsize=7)
    panel.margins(x=0.12)
    panel.set_title(case.title, fontsize=9, loc="left")
    panel.set_xlabel(metric.title, fontsize=8)
    panel.tick_params(labelsize=8)


def lines(
    results: Results, path: Path, metric: Metric, x: Mapping[str, float], x_title: str, title: str
) -> Picture:
    """A line per mode over the cases named in `x`, with standard errors; both axes logarithmic."""
    figure, panel = pyplot.subplots(figsize=(8, 4.8))
    cases = [case for case in results.cases if case.name in x]
    titles = {mode.name: mode.title for case in cases for mode in results.modes(case)}
    for number, (name, mode_title) in enumerate(titles.items()):
        points = [(case, mode) for case in cases if (mode := results.mode(case, name))]
        panel.errorbar(
            [x[case.name] for case, _ in points],
            [results.median(case, mode, metric) / metric.divide for case, mode in points],
            yerr=[_error(results, case, mode, metric) / metric.divide for case, mode in points],
            label=mode_title,
            color=_SERIES_COLORS[number % len(_SERIES_COLORS)],
            marker=_MARKERS[number % len(_MARKERS)],
            linestyle=_DASHES[number % len(_DASHES)],
            markersize=5,
            capsize=2,
        )
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    _plain_ticks(panel.xaxis, sorted(set(x.values())))
    _plain_logarithmic_ticks(panel.yaxis)
    panel.set_xlabel(x_title)
    panel.set_ylabel(metric.title)
    panel.set_title(title, fontsize=10, loc="left")
    panel.grid(alpha=0.3)
    _legend_below(panel, titles)
    _save(figure, path)
    return Picture(path, f"{title}: {metric.title} by {x_title}. " + _in_words(results, cases, metric))


def grouped(path: Path, title: str, y_title: str, groups: Mapping[str, Mapping[str, float]]) -> Picture:
    """Vertical bars with their values: a group per key, a bar in it per series."""
    figure, panel = pyplot.subplots(figsize=(9, 4.2))
    series = list(dict.fromkeys(name for values in groups.values() for name in values))
    width = 0.8 / max(1, len(series))
    rotation = 90 if len(groups) * len(series) > _MOST_LEVEL_VALUES else 0
    for number, name in enumerate(series):
        offsets = [index - 0.4 + width * (number + 0.5) for index in range(len(groups))]
        heights = [values.get(name, math.nan) for values in groups.values()]
        bars = panel.bar(
            offsets,
            heights,
            width,
            label=name,
            color=_SERIES_COLORS[number % len(_SERIES_COLORS)],
            hatch=_SERIES_HATCHES[number % len(_SERIES_HATCHES)],
            edgecolor=_EDGE,
        )
        texts = ["" if math.isnan(height) else f"{height:.2f}" for height in heights]
        panel.bar_label(bars, texts, padding=2, fontsize=6, rotation=rotation)
    panel.margins(y=0.12)
    panel.set_xticks(range(len(groups)), list(groups), fontsize=8)
    panel.set_ylabel(y_title)
    panel.set_title(title, fontsize=10, loc="left")
    panel.axhline(1, color="black", linewidth=0.6)
    _legend_below(panel, series)
    _save(figure, path)
    return Picture(
        path, f"{title}: {y_title}. " + "; ".join(_series_in_words(groups, name) for name in series)
    )


def _series_in_words(groups: Mapping[str, Mapping[str, float]], name: str) -> str:
    values = {group: row[name] for group, row in groups.items() if name in row}
    least, most = min(values, key=values.get), max(values, key=values.get)
    return f"{name}: from {values[least]:.2f} ({least}) to {values[most]:.2f} ({most})"


def _plain(value: float, _: object = None) -> str:
    """A number as people write it, where an axis would have a power."""
    return f"{value:g}"


def _plain_ticks(axis, values: list[float]) -> None:
    axis.set_major_locator(ticker.FixedLocator(values))
    axis.set_major_formatter(_plain)
    axis.set_minor_locator(ticker.NullLocator())


def _plain_logarithmic_ticks(axis) -> None:
    """Several within one power of ten, and few enough to be read over many."""
    least, most = axis.get_view_interval()
    if most < _NARROW_RANGE * least:
        locator = ticker.MaxNLocator(6)
    else:
        locator = ticker.LogLocator(subs=range(1, 10) if most < _DENSE_RANGE * least else (1, 2, 5))
    axis.set_major_locator(locator)
    axis.set_major_formatter(_plain)
    axis.set_minor_locator(ticker.NullLocator())


def _legend_below(panel, series: Sized) -> None:
    """Where it covers nothing."""
    panel.legend(
        fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=min(3, max(1, len(series)))
    )


def _error(results: Results, case: Case, mode: Mode, metric: Metric) -> float:
    error = stats.standard_error(list(results.series(case, mode, metric).values()))
    return 0 if math.isnan(error) else error


def _save(figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
    return path
