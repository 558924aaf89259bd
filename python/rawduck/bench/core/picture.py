"""A plot of a report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Picture:
    path: Path
    #: What it shows, for those who do not see it.
    text: str
