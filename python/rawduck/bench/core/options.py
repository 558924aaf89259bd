"""What a person chose on the command line."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

OWN_TARGET = "bench.rawduck"
_OWN_NAME = r"bench(-\d+)?\.rawduck"


@dataclass(frozen=True)
class Options:
    target: str
    stock_dir: Path
    work_dir: Path
    out: Path
    #: A source release of DuckDB, which has the queries of TPC-H; None: one is found, or downloaded.
    duckdb_source: Path | None = None
    #: None leaves the choice to the experiment.
    scale: float | None = None
    runs: int | None = None
    threads: int | None = None
    memory_limit: str | None = None
    quick: bool = False
    #: Only cases with such a name (*, ?, [...]); empty for all.
    cases: str = ""
    #: Only modes with such a name, or several of them separated by commas; empty for all.
    modes: str = ""
    resume: bool = False
    overwrite: bool = False
    format: bool = False
    force: bool = False
    #: What --force destroys is not asked about.
    yes: bool = False
    keep: bool = False
    #: Memory is not touched before each run: on a virtual machine the runs pay for what its host gives anew.
    cold_memory: bool = False
    #: A Ceph cluster's configuration file and a pool to put data into; without them there is one of our own.
    ceph_conf: str = ""
    ceph_pool: str = ""
    #: The command that was typed, for the reports.
    command: str = "rawduck bench"

    def wants(self, case: str) -> bool:
        """Whether the case of this name is to be run."""
        return not self.cases or fnmatch.fnmatchcase(case, self.cases)

    def wants_mode(self, mode: str) -> bool:
        """Whether runs of the mode of this name are to be made."""
        return not self.modes or any(fnmatch.fnmatchcase(mode, name) for name in self.modes.split(","))

    def own_target_path(self, number: int = 1) -> Path:
        return self.work_dir / (f"bench-{number}.rawduck" if number > 1 else OWN_TARGET)

    def is_own(self, target: str) -> bool:
        """Whether a target is a file of the benchmark's own, which it may overwrite and remove."""
        return Path(target).parent == self.work_dir and re.fullmatch(_OWN_NAME, Path(target).name) is not None
