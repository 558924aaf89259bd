"""The experiments of `rawduck bench`, by name, in the order in which `rawduck bench all` runs them."""

from __future__ import annotations

from rawduck.bench.art import Art
from rawduck.bench.commits import Commits
from rawduck.bench.experiment import Experiment
from rawduck.bench.fdp import Fdp
from rawduck.bench.grouping import Grouping
from rawduck.bench.load import Load
from rawduck.bench.micro import Micro
from rawduck.bench.paper import Passthrough, Strategies
from rawduck.bench.scaling import Scaling
from rawduck.bench.scan import Scan
from rawduck.bench.skyhook import Skyhook
from rawduck.bench.spill import Spill
from rawduck.bench.tpch import Tpch
from rawduck.bench.warm import Warm

EXPERIMENTS: dict[str, type[Experiment]] = {
    kind.name: kind
    for kind in (
        Micro,
        Scan,
        Passthrough,
        Strategies,
        Tpch,
        Grouping,
        Spill,
        Load,
        Commits,
        Fdp,
        Art,
        Scaling,
        Warm,
        Skyhook,
    )
}
