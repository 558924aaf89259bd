"""What a person chose on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    target: str
    stock_dir: Path
    work_dir: Path
    out: Path
    #: None leaves the choice to the experiment.
    scale: float | None = None
    runs: int | None = None
    threads: int | None = None
    memory_limit: str | None = None
    quick: bool = False
    resume: bool = False
    overwrite: bool = False
    format: bool = False
    force: bool = False
    keep: bool = False
    #: The command that was typed, for the reports.
    command: str = "rawduck bench"

    @property
    def own_target(self) -> bool:
        """Whether the volume is the benchmark's own file, which it may overwrite and remove."""
        return Path(self.target) == self.work_dir / "bench.rawduck"
