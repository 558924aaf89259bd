"""The report of one experiment in Markdown: bars, a table per case, plots, what was left out, the machine."""

from __future__ import annotations

import importlib.util
import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rawduck.bench.core import machine, stats
from rawduck.bench.core.case import Case, Kind, Mode
from rawduck.bench.core.experiment import Bar, Experiment
from rawduck.bench.core.options import Options
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.results import CONFIGURATIONS_NAME, CSV_NAME, Results

REPORT_NAME = "report.md"
INSTALL = "pip install 'rawduck[bench]'"


def write(experiment: Experiment, results: Results, bars: list[Bar], options: Options) -> Path:
    """Writes report and plots into the experiment's folder. Returns the path of the report."""
    plots = _plots(experiment, results)
    parts = [
        f"# {experiment.title}",
        finding(experiment, results, options.quick),
        experiment.text,
        f"Made with `{options.command}`. Every run is a row of [{CSV_NAME}]({CSV_NAME}); its configuration "
        f"and the machine are in [{CONFIGURATIONS_NAME}]({CONFIGURATIONS_NAME}). {_memory(options)}",
    ]
    if bars:
        parts += ["## Bars", bars_table(bars)]
    parts += experiment.notes(results)
    parts += [f"![{_alternative(plot)}]({plot.path.name})" for plot in plots]
    parts.append("## Measurements")
    for case in results.cases:
        parts += [f"### {case.title}", case_table(experiment, results, case)]
    parts.append(_how_to_read(experiment))
    if experiment.left_out:
        parts += ["## Left out", table(("what", "why"), experiment.left_out)]
    if results.failures():
        rows = [(row.case, row.mode, str(row.run), row.error) for row in results.failures()]
        parts += ["## Failed runs", table(("case", "mode", "run", "error"), rows)]
    parts += ["## Machine", table(("", ""), machine.rows(results.machine))]
    path = results.folder / REPORT_NAME
    path.write_text("\n\n".join(parts) + "\n")
    return path


def _memory(options: Options) -> str:
    if options.cold_memory:
        return "Memory was not touched before the runs: they pay for what its host gives anew."
    return (
        "Before each run, of every mode alike, as much memory was touched in huge pages and freed as is said "
        "below, so that no run pays for what a virtual machine's host gives anew."
    )


def finding(experiment: Experiment, results: Results, quick: bool) -> str:
    """What was found, in one sentence."""
    start = "A quick run, with too little data to judge by: by" if quick else "By"
    metric = experiment.main_metric
    ratios = {}
    for case in results.cases:
        pair = (next(iter(results.modes(case, Kind.OURS)), None), _best_stock(experiment, results, case))
        ratio, _ = results.compare(case, *(pair if experiment.smaller_is_better else pair[::-1]), metric)
        if ratio:
            ratios[case.title] = ratio
    if not ratios:
        return f"{start} {metric.title}, there is nothing that rawduck and stock DuckDB can be compared by."
    least, most = min(ratios, key=ratios.get), max(ratios, key=ratios.get)
    mean = stats.geometric_mean(list(ratios.values()))
    found = f"{start} {metric.title}, rawduck does {mean:.2f} times as well as the best mode of stock DuckDB"
    if len(ratios) == 1:
        return f"{found}."
    return (
        f"{found} (geometric mean of {len(ratios)} cases): least in “{least}” ({ratios[least]:.2f}), most in "
        f"“{most}” ({ratios[most]:.2f})."
    )


def _best_stock(experiment: Experiment, results: Results, case: Case) -> Mode | None:
    choose = min if experiment.smaller_is_better else max
    modes = results.modes(case, Kind.STOCK)
    return choose(modes, key=lambda mode: results.median(case, mode, experiment.main_metric), default=None)


def _alternative(picture: Picture) -> str:
    return picture.text.replace("[", "(").replace("]", ")")


def _plots(experiment: Experiment, results: Results) -> list[Picture]:
    if importlib.util.find_spec("matplotlib") is None:
        experiment.leave_out("plots", f"matplotlib is not installed: {INSTALL}")
        return []
    return experiment.plots(results, results.folder)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a column whose name starts with '>' is right-aligned."""
    lines = [[name.lstrip(">") for name in header], ["---:" if n.startswith(">") else "---" for n in header]]
    lines += [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bars_table(bars: list[Bar]) -> str:
    rows = []
    for bar in bars:
        reached = "not measured" if bar.reached is None else format(bar.reached, bar.format)
        met = "" if bar.reached is None else "yes" if bar.met else "**no**"
        rows.append((bar.work, bar.wanted, reached, _p_text(bar.p_value), met))
    return table(("work", ">bar", ">reached", ">p", "met"), rows)


def case_table(experiment: Experiment, results: Results, case: Case) -> str:
    """One row per mode: medians and standard errors, and how it compares with stock's default."""
    main = experiment.main_metric
    shown = [m for m in experiment.metrics if any(results.series(case, mode, m) for mode in case.modes)]
    others = [metric for metric in shown if metric is not main]
    base = _base(results, case)
    header = ["mode", f">{main.title}", ">± SE", ">runs", *(f">{metric.title}" for metric in others)]
    header += [f">times {base.title}", ">p"] if base else []
    rows = []
    for mode in results.modes(case):
        values = list(results.series(case, mode, main).values())
        cells = [mode.title, *_main_cells(main, values)]
        for metric in others:
            median = results.median(case, mode, metric)
            cells.append("" if median is None else metric.text(median))
        cells += _compared(experiment, results, case, mode, base) if base else []
        rows.append(cells)
    return table(header, rows) if rows else "No results."


def _base(results: Results, case: Case) -> Mode | None:
    """What the other modes are compared with: the first of stock's, otherwise the first."""
    return next(iter(results.modes(case, Kind.STOCK) or results.modes(case)), None)


def _main_cells(metric, values: list[float]) -> list[str]:
    if not values:
        return ["", "", "0"]
    error = stats.standard_error(values)
    return [
        metric.text(stats.median(values)),
        "" if math.isnan(error) else metric.text(error),
        str(len(values)),
    ]


def _compared(experiment: Experiment, results: Results, case: Case, mode: Mode, base: Mode) -> list[str]:
    if mode is base:
        return ["1.00", ""]
    better, worse = (mode, base) if experiment.smaller_is_better else (base, mode)
    ratio, p_value = results.compare(case, better, worse, experiment.main_metric)
    return ["" if ratio is None else f"{ratio:.2f}", _p_text(p_value)]


def _p_text(p_value: float | None) -> str:
    if p_value is None:
        return ""
    text = "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
    return f"**{text}**" if p_value < stats.SIGNIFICANT else text


def _how_to_read(experiment: Experiment) -> str:
    better = "smaller" if experiment.smaller_is_better else "larger"
    without = "" if importlib.util.find_spec("scipy") else f" It needs scipy, which is missing: {INSTALL}."
    return (
        "Values are medians; SE is the standard error of the mean. Modes take turns, and run n of one is "
        "paired with run n of the other: p is the probability, by a paired one-sided t-test, of a difference "
        f"like this one if the mode were not better ({better}) than what it is compared with. Bold: p < "
        f"{stats.SIGNIFICANT}; near 1: it is worse.{without}"
    )


def summary(rows: list[tuple[str, Sequence[Bar], bool]], folder: Path) -> Path:
    """One page over several experiments: (name, bars, failed) each."""
    parts = ["# Benchmarks"]
    for name, bars, failed in rows:
        parts.append(f"## [{name}]({name}/{REPORT_NAME})" + (", with failed runs" if failed else ""))
        if bars:
            parts.append(bars_table(list(bars)))
    path = folder / REPORT_NAME
    path.write_text("\n\n".join(parts) + "\n")
    return path


def command_line(arguments: list[str]) -> str:
    return shlex.join(["rawduck", *arguments])
