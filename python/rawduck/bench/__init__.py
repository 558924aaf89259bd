"""The experiments of `rawduck bench`, by name, in the order in which `rawduck bench all` runs them."""

from __future__ import annotations

from rawduck.bench.experiment import Experiment
from rawduck.bench.scan import Scan

EXPERIMENTS: dict[str, type[Experiment]] = {kind.name: kind for kind in (Scan,)}
