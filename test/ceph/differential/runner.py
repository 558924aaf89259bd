"""Runs batches in processes of their own, and sums up what they found."""

from __future__ import annotations

import json
import operator
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rawduck.ceph.cluster import Cluster

from differential.judging.coverage import Sum

#: Queries of a batch, which share their tables.
QUERIES = 200
RESTART = 3  # batch.py
JOBS = 2
PROGRESS_SECONDS = 20


@dataclass
class Findings:
    """What all batches found so far."""

    counts: Counter = field(default_factory=Counter)
    coverage: Sum = field(default_factory=Sum)
    differences: list[dict] = field(default_factory=list)
    begin: float = field(default_factory=time.monotonic)

    def closing_line(self) -> str:
        return (
            f"{self.counts['comparisons']} comparisons, {self.counts['differences']} differences, "
            f"{self.counts['errors that differ']} errors that differ"
        )

    def progress(self) -> str:
        seconds = time.monotonic() - self.begin
        counts = self.counts
        return (
            f"{self.closing_line()}; {counts['pushed']} pushed, {counts['read fails']} fail when read "
            f"({counts['internal errors when read']} with an internal error of DuckDB), "
            f"{counts['objects were replaced']} since objects were replaced; {counts['batches']} batches, "
            f"{self.counts['comparisons'] / max(seconds, 0.1):.0f} comparisons/s"
        )

    def describe(self, most: int = 20) -> str:
        """The differences, one of each kind."""
        seen: dict[str, dict] = {}
        for found in self.differences:
            seen.setdefault(f"{found['mode']} {_kind(found['text'])}", found)
        lines = []
        for found in list(seen.values())[:most]:
            place = f"seed {found['seed']}, query {found['number']}, {found['mode']}"
            lines.append(f"{place}: {found['text'][:300]}")
            names = ("sql", "settings", "threads", "read", "other", "file")
            lines += [f"    {name}: {found[name]}" for name in names if found.get(name)]
        return "\n".join(lines)


def _kind(text: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"|rados://\S+|[\d.e+-]+", "…", text.split("\n")[0])[:60]


class Runner:
    """Runs batches on a cluster with the pools `data` and `coded`. `folder`: of the differences' scripts."""

    def __init__(self, cluster: Cluster, folder: Path, what: str = "all") -> None:
        """`what`: see batch.py."""
        self.cluster, self.folder, self.what = cluster, folder, what
        self.findings = Findings()
        self._lock = threading.Lock()  # guards findings, and the daemons' state

    def run(
        self, seeds: Iterator[str], comparisons: int, seconds: float = 1e9, queries: int = QUERIES
    ) -> Findings:
        """Runs a batch per seed until there were so many comparisons, or so much time went by."""
        limit = time.monotonic() + seconds
        shown = [time.monotonic()]

        def work() -> None:
            while self.findings.counts["comparisons"] < comparisons and time.monotonic() < limit:
                with self._lock:
                    seed = next(seeds, None)
                if seed is None:
                    return
                self.run_batch(seed, queries)
                if time.monotonic() - shown[0] > PROGRESS_SECONDS:
                    shown[0] = time.monotonic()
                    print(self.findings.progress(), flush=True)

        with ThreadPoolExecutor(JOBS) as pool:
            for done in [pool.submit(work) for _ in range(JOBS)]:
                done.result()
        return self.findings

    def run_batch(self, seed: str, queries: int = QUERIES) -> None:
        self._run(seed, self.what, 0, queries)
        with self._lock:
            self.findings.counts["batches"] += 1

    def run_one(self, seed: str, number: int) -> None:
        """One query of a batch."""
        self._run(seed, "one", number, number + 1)

    def run_known(self, cases: int) -> None:
        """The first cases of known.py."""
        self._run("known", "known", 0, cases)

    def _run(self, seed: str, what: str, first: int, end: int) -> None:
        """A process that crashes or hangs is started again behind the query that it was at."""
        while first is not None and first < end:
            first = self._run_process(seed, what, first, end)
        self._require_osds(seed)

    def _run_process(self, seed: str, what: str, first: int, end: int) -> int | None:
        """Returns the query to go on with; None: the batch is finished."""
        at: dict = {"number": first, "sql": "none"}
        process = self._start(seed, what, str(first), str(end))
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "query":
                at = event
            else:
                self._take(event)
        stderr = process.communicate()[1]
        if process.returncode == 0:
            return None
        if process.returncode == RESTART:
            return at["number"] + 1
        how = f"signal {-process.returncode}" if process.returncode < 0 else stderr.strip()[-600:]
        number = at["number"]
        with self._lock:
            self.findings.counts["differences"] += 1
        found = {"seed": seed, "mode": "any", "text": f"the process ended: {how}", **at}
        is_query = isinstance(number, int)
        self._add(found, self._script(seed, number) if is_query and what != "known" else "")
        return number + 1 if is_query else None

    def _start(self, *arguments: str) -> subprocess.Popen:
        command = [
            sys.executable,
            "-m",
            "differential.batch",
            str(self.cluster.conf),
            str(self.cluster.keyring),
        ]
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def _take(self, event: dict) -> None:
        if event["event"] == "counts":
            with self._lock:
                self.findings.counts.update(event["counts"])
                self.findings.coverage.add(event["coverage"])
        elif event["event"] == "difference":
            self._add(event, "")
        else:
            self._add(event, event.pop("script"))

    def _add(self, found: dict, script: str) -> None:
        """Keeps a difference; a smaller one replaces the one before."""
        with self._lock:
            if script:
                self.folder.mkdir(parents=True, exist_ok=True)
                file = self.folder / f"difference_{found['seed']}_{found['number']}.py"
                file.write_text(script)
                found["file"] = str(file)
            place = operator.itemgetter("seed", "number", "mode")
            for old in self.findings.differences:
                if place(old) == place(found):
                    old.update(found)
                    return
            self.findings.differences.append(found)

    def _script(self, seed: str, number: int) -> str:
        process = self._start(seed, "script", str(number), "always")
        out, _ = process.communicate()
        events = [json.loads(line) for line in out.splitlines()]
        return next((event["script"] for event in events if "script" in event), "")

    def _require_osds(self, seed: str) -> None:
        """An OSD that died is a difference; it is started again."""
        with self._lock:
            for name in self.cluster.daemon_names():
                if self.cluster.daemon(name).failed:
                    self.findings.counts["differences"] += 1
                    text = f"{name} died during this batch or the one beside it"
                    self.findings.differences.append(
                        {"seed": seed, "number": "", "mode": "any", "text": text, "sql": ""}
                    )
                    self.cluster.restart(name)
