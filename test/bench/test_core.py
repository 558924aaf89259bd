"""The core of the benchmarks: statistics, configurations, resuming, answers, reports."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import re
import signal
import subprocess
import sys

import pytest
import rawduck
from rawduck import disks
from rawduck.bench.core import machine, report, stats
from rawduck.bench.core.case import CPU, WALL, Case, Kind, Measurement, Mode
from rawduck.bench.core.experiment import Bar, Experiment, at_least, at_most
from rawduck.bench.core.options import Options
from rawduck.bench.core.results import Results, digest
from rawduck.bench.core.runner import Runner
from rawduck.bench.experiments.spill import memory_bytes
from rawduck.measuring import warm_memory
from rawduck.measuring.memory_cap import MemoryCap

MACHINE = {
    "cpu": "test", "cores": 2, "usable_cores": 2, "memory_mib": 1024, "system": "Linux", "kernel": "1",
    "architecture": "x", "target": "/t/bench.rawduck", "target_disk": {"name": "none"}, "root": False,
    "stock_disk": {"name": "none"}, "stock_file_system": "none", "duckdb": "2", "rawduck": "0",
    "rawduck_build": "b", "warmed_mib": 512,
}  # fmt: skip
OURS = Mode("ours", "ours | new", Kind.OURS)
STOCK = Mode("stock", "stock", Kind.STOCK)
FRAGILE = Mode("fragile", "fragile", Kind.STOCK, optional=True)


class Counting(Experiment):
    """A real experiment in all but its work: the seconds come from a list, and every call is noted."""

    name = "counting"
    title = "Counting"
    text = "Counts."
    metrics = (WALL, CPU)

    def __init__(self, modes=(OURS, STOCK), settings=None, answers=None, stop_after=None, warm_up=False):
        super().__init__(bench=None)
        self.modes, self.settings, self.warm_up = list(modes), settings or {"scale": 1}, warm_up
        self.answers = answers or {}
        self.stop_after = stop_after
        self.fragile_runs = 0  #: that succeed
        self.calls: list[str] = []
        self.prepared = 0

    def cases(self):
        yield Case(
            "count", "Count", self.settings, self.modes, self.measure, self.prepare, warm_up=self.warm_up
        )

    def prepare(self):
        self.prepared += 1

    def measure(self, mode):
        if len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        self.calls.append(mode.name)
        if mode is FRAGILE and self.calls.count("fragile") > self.fragile_runs:
            raise rawduck.RawduckError("Invalid\nargument")
        seconds = {"ours": 1.0}.get(mode.name, 2.0) + 0.01 * (len(self.calls) % 3)
        return Measurement({"wall_s": seconds, "cpu_s": seconds / 2}, self.answers.get(mode.name))


def run(
    folder, experiment, runs=3, resume=False, overwrite=False, machine=MACHINE, cases="", modes=""
) -> Results:
    results = Results(folder, experiment.name, machine, experiment.metrics)
    results.open(resume, overwrite)
    options = Options("t", folder, folder, folder, cases=cases, modes=modes)
    Runner(experiment, results, runs, options.wants, options.wants_mode).run()
    return results


def csv_rows(folder) -> list[dict[str, str]]:
    with (folder / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_target_that_the_kernel_does_not_drive_lies_on_no_disk(tmp_path):
    """Nor on that of the folder in which it happens to be named."""
    described = machine.describe("vfio:0000:01:00.0n1", tmp_path)
    assert described["target_disk"] == {
        "name": "PCI function 0000:01:00.0n1, which the kernel does not drive"
    }
    assert disks.is_device("vfio:0000:01:00.0n1")
    assert not disks.is_device(str(tmp_path / "bench.rawduck"))


def test_median_and_standard_error():
    values = [2, 4, 4, 4, 5, 5, 7, 9]
    assert stats.median(values) == 4.5
    assert stats.standard_error(values) == pytest.approx(math.sqrt(32 / 7) / math.sqrt(8))
    assert math.isnan(stats.standard_error([1]))
    assert stats.geometric_mean([1, 4]) == pytest.approx(2)


def test_paired_t_test_against_the_closed_form():
    """Student's distribution with 4 degrees of freedom has a closed form."""
    smaller, larger = [10, 20, 30, 40, 50], [11, 22, 33, 44, 55]
    t = -3 / (math.sqrt(2.5) / math.sqrt(5))
    below = 0.5 + 3 / 8 * t / math.sqrt(1 + t * t / 4) * (1 - t * t / (12 * (1 + t * t / 4)))
    assert stats.paired_t_test(smaller, larger) == pytest.approx(below)
    assert stats.paired_t_test(larger, smaller) == pytest.approx(1 - below)


def test_paired_t_test_that_says_nothing():
    assert stats.paired_t_test([1], [2]) is None
    assert stats.paired_t_test([1, 2], [2, 3]) is None


def test_digest():
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest({"a": 1}) != digest({"b": 1})


def test_one_row_per_run_joins_to_its_configuration(tmp_path):
    run(tmp_path, Counting())
    rows = csv_rows(tmp_path)
    assert [(row["mode"], row["run"]) for row in rows] == [
        ("ours", "1"), ("stock", "1"), ("stock", "2"), ("ours", "2"), ("ours", "3"), ("stock", "3"),
    ]  # fmt: skip
    known = json.loads((tmp_path / "configurations.json").read_text())
    for row in rows:
        configuration = known["configurations"][row["configuration"]]
        assert configuration["mode"]["name"] == row["mode"]
        assert configuration["case"]["scale"] == 1
        assert known["machines"][configuration["machine"]] == MACHINE
    assert float(rows[0]["wall_s"]) == 1.01
    assert rows[0]["time_utc"].endswith("+00:00")


class Swallowing(Counting):
    """Interrupted in a place that drops the exception, as destructors and callbacks do."""

    def measure(self, mode):
        measurement = super().measure(mode)
        if len(self.calls) == 3:
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        return measurement


def test_an_interrupt_is_never_lost(tmp_path):
    experiment = Swallowing()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, experiment)
    assert len(experiment.calls) == 3
    assert [row["error"] for row in csv_rows(tmp_path)] == ["", ""], "the run that it met does not count"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupts_that_are_ignored_stay_so(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run(tmp_path, Swallowing())
    assert len(csv_rows(tmp_path)) == 6
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_only_the_cases_that_were_named(tmp_path):
    experiment = Counting()
    run(tmp_path, experiment, cases="other*")
    assert not experiment.calls
    run(tmp_path, experiment, resume=True, cases="c[no]*")
    assert len(experiment.calls) == 6


def test_only_the_modes_that_were_named(tmp_path):
    experiment = Counting(modes=(OURS, STOCK, FRAGILE), warm_up=True)
    results = run(tmp_path, experiment, runs=2, modes="stock,o?rs")
    assert sorted(experiment.calls) == ["ours"] * 3 + ["stock"] * 3
    case = results.cases[0]
    assert results.compare(case, OURS, STOCK, WALL)[0] == pytest.approx(2, rel=0.1)
    assert results.compare(case, OURS, FRAGILE, WALL)[0] is None
    run(tmp_path, experiment, runs=2, resume=True, modes="none")
    assert len(experiment.calls) == 6


def test_resuming_runs_only_what_is_missing(tmp_path):
    first = Counting(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, first)
    assert len(csv_rows(tmp_path)) == 3
    second = Counting()
    run(tmp_path, second, resume=True)
    assert second.calls == ["ours", "ours", "stock"]
    assert len(csv_rows(tmp_path)) == 6
    third = Counting()
    results = run(tmp_path, third, resume=True)
    assert (third.calls, third.prepared) == ([], 0)
    assert len(results.series(results.cases[0], OURS, WALL)) == 3


def test_a_half_written_row_is_run_again(tmp_path):
    run(tmp_path, Counting())
    path = tmp_path / "results.csv"
    path.write_text(path.read_text()[:-8])
    again = Counting()
    run(tmp_path, again, resume=True)
    assert again.calls == ["stock"]
    assert len(csv_rows(tmp_path)) == 6


@pytest.mark.parametrize("other", [{"settings": {"scale": 2}}, {"machine": MACHINE | {"rawduck_build": "c"}}])
def test_another_configuration_is_not_mixed_in(tmp_path, other):
    run(tmp_path, Counting(), runs=2)
    again = Counting(settings=other.get("settings"))
    results = run(tmp_path, again, runs=2, resume=True, machine=other.get("machine", MACHINE))
    assert len(again.calls) == 4
    assert len(csv_rows(tmp_path)) == 8
    assert len(results.series(results.cases[0], OURS, WALL)) == 2
    assert len(json.loads((tmp_path / "configurations.json").read_text())["configurations"]) == 4


def test_results_are_not_lost_unasked(tmp_path):
    run(tmp_path, Counting())
    before = (tmp_path / "results.csv").read_text()
    with pytest.raises(rawduck.RawduckError, match="--resume"):
        run(tmp_path, Counting())
    assert (tmp_path / "results.csv").read_text() == before
    run(tmp_path, Counting(), runs=1, overwrite=True)
    assert len(csv_rows(tmp_path)) == 2


def test_results_with_other_columns_are_not_continued(tmp_path):
    run(tmp_path, Counting())
    other = Counting()
    other.metrics = (WALL,)
    with pytest.raises(rawduck.RawduckError, match="columns"):
        run(tmp_path, other, resume=True)


def test_a_different_answer_is_a_failed_run_and_tried_again(tmp_path):
    wrong = Counting(answers={"ours": [(1, "a")], "stock": [(2, "a")]})
    results = run(tmp_path, wrong)
    assert wrong.calls == ["ours", "stock", "ours", "ours"]
    assert [row.mode for row in results.failures()] == ["stock"]
    assert "1" in results.failures()[0].error
    right = Counting(answers={"ours": [(1, "a")], "stock": [(1, "a")]})
    results = run(tmp_path, right, resume=True)
    assert right.calls == ["stock"] * 3
    assert results.failures() == []


def test_answers_outlive_the_session(tmp_path):
    run(tmp_path, Counting(answers={"ours": [(1,)], "stock": [(1,)]}), runs=1)
    results = run(tmp_path, Counting(answers={"ours": [(3,)], "stock": [(3,)]}), runs=2, resume=True)
    assert {row.mode for row in results.failures()} == {"ours", "stock"}


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_an_optional_mode_is_left_out_with_its_reason(tmp_path, runs):
    """Also when it fails later: stock's DIRECT_IO depends on where its buffers happen to lie."""
    experiment = Counting(modes=(OURS, STOCK, FRAGILE))
    experiment.fragile_runs = runs
    results = run(tmp_path, experiment)
    assert experiment.calls.count("fragile") == runs + 1
    assert experiment.left_out == [("fragile", "Invalid argument")]
    assert results.failures() == []
    measured = ["ours", "stock"] if runs < 2 else ["ours", "stock", "fragile"]
    assert [mode.name for mode in results.modes(results.cases[0])] == measured


def test_warm_up_runs_do_not_count(tmp_path):
    experiment = Counting(warm_up=True)
    run(tmp_path, experiment, runs=1)
    assert len(experiment.calls) == 4
    assert len(csv_rows(tmp_path)) == 2


def test_compare_and_best(tmp_path):
    results = run(tmp_path, Counting(), runs=5)
    case = results.case("count")
    ratio, p_value = results.compare(case, OURS, STOCK, WALL)
    assert ratio == results.median(case, STOCK, WALL) / results.median(case, OURS, WALL)
    assert ratio == pytest.approx(2, rel=0.02)
    assert p_value < stats.SIGNIFICANT
    assert results.best(case, WALL) is STOCK
    assert results.compare(case, None, STOCK, WALL) == (None, None)


def test_bars():
    assert at_least("x", 2.0, 2.0).met
    assert not at_least("x", 2.0, 1.99).met
    assert at_most("x", 0.6, 0.6).met
    assert not at_most("x", 0.6, 0.61).met
    assert not at_least("x", 2.0, None).met


def test_report(tmp_path):
    experiment = Counting(modes=(OURS, STOCK, FRAGILE))
    results = run(tmp_path, experiment, runs=5)
    bars = [at_least("speed", 1.5, 2.0, 0.0001), at_least("more", 3.0, 2.0), Bar("gone", "≥ 1", None, False)]
    options = Options("t", tmp_path, tmp_path, tmp_path, command="rawduck bench counting")
    text = report.write(experiment, results, bars, options).read_text()
    assert "| speed | ≥ 1.50 | 2.00 | **< 0.001** | yes |" in text
    assert "| more | ≥ 3.00 | 2.00 |  | **no** |" in text
    assert "| gone | ≥ 1 | not measured |  |  |" in text
    ours = next(line for line in text.splitlines() if line.startswith("| ours \\| new"))
    cells = [cell.strip() for cell in ours.replace("\\|", "").split("|")]
    values = list(results.series(results.cases[0], OURS, WALL).values())
    median, error = stats.median(values), stats.standard_error(values)
    assert cells[2:6] == [f"{median:.3f}", f"{error:.3f}", "5", f"{median / 2:.3f}"]
    assert float(cells[6]) == pytest.approx(2, rel=0.02)
    assert "| fragile | Invalid argument |" in text
    assert "rawduck bench counting" in text
    picture = tmp_path / "counting-1.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 100_000
    assert f"({picture.name})" in text


def test_memory_is_warmed_before_each_run_of_every_mode(tmp_path):
    experiment = Counting(warm_up=True)
    results = Results(tmp_path, experiment.name, MACHINE, experiment.metrics)
    results.open(False, False)
    runs_before = []
    Runner(experiment, results, 2, warm_memory=lambda: runs_before.append(len(experiment.calls))).run()
    assert runs_before == list(range(2 * 3)), "each of two modes once in vain, and twice"
    for cold, sentence in ((False, "memory was touched in huge pages"), (True, "Memory was not touched")):
        options = Options("t", tmp_path, tmp_path, tmp_path, cold_memory=cold)
        assert sentence in report.write(experiment, results, [], options).read_text()


TOUCH = """
import sys
from rawduck.measuring import warm_memory
def mib(name):
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith(name))
before = mib("VmRSS")
"""


def test_memory_that_is_touched_is_held_at_once_and_given_back():
    code = f"""{TOUCH}
warm_memory.touch(600)
assert mib("VmHWM") - before > 590
assert mib("VmRSS") - before < 50
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_memory_that_cannot_be_had_is_an_error():
    with pytest.raises(rawduck.RawduckError, match=r"are available; .*--cold-memory"):
        warm_memory.touch(2**30)
    code = f"""{TOUCH}
import resource
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
warm_memory.touch(600)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the system refuses it: Cannot allocate memory" in done.stderr


@pytest.fixture
def memory_cap():
    try:
        return MemoryCap.find()
    except rawduck.RawduckError as error:
        pytest.skip(str(error))


def test_no_more_is_touched_than_half_of_a_control_groups_limit(memory_cap):
    code = f"""{TOUCH}
from pathlib import Path
from rawduck.measuring.control_group import join
join(Path(sys.argv[1]))
assert warm_memory.most_mib() == 200, warm_memory.most_mib()
warm_memory.touch(200)
"""
    with memory_cap.group(400 * 2**20) as group:
        subprocess.run([sys.executable, "-c", code, group], check=True)


def test_what_others_of_a_control_group_have_is_not_touched(memory_cap):
    code = f"""{TOUCH}
from pathlib import Path
from rawduck.measuring.control_group import join
join(Path(sys.argv[1]))
others = bytearray(250 << 20)
warm_memory.touch(100)
warm_memory.touch(warm_memory.most_mib())
"""
    with memory_cap.group(400 * 2**20) as group:
        done = subprocess.run(
            [sys.executable, "-c", code, group], capture_output=True, text=True, check=False
        )
    assert re.search(rf"cannot touch 200 MiB .* MiB are available in the control group {group};", done.stderr)


def test_duckdb_opens_with_the_block_allocators_memory_in_a_control_group(memory_cap):
    code = """
import sys
from pathlib import Path
from rawduck.measuring.control_group import join
join(Path(sys.argv[1]))
import duckdb
from rawduck.bench.core.modes import allocator_memory
with duckdb.connect(config={"block_allocator_memory": allocator_memory()}) as connection:
    print(allocator_memory(), connection.execute("SELECT sum(range) FROM range(1000)").fetchone())
"""
    with memory_cap.group(300 * 2**20) as group:
        done = subprocess.run(
            [sys.executable, "-c", code, group], capture_output=True, text=True, check=False
        )
    assert done.stdout == "150MiB (499500,)\n", done


def test_memory_limits_are_read_as_duckdb_writes_them():
    assert memory_bytes("2GB") == 2 * 10**9
    assert memory_bytes("512MiB") == 512 * 2**20
    assert memory_bytes("1.5 GiB") == 3 * 2**29
    with pytest.raises(rawduck.RawduckError, match="80%"):
        memory_bytes("80%")
