"""The experiments of `rawduck bench`, by name, in the order in which `rawduck bench all` runs them."""

from __future__ import annotations

from rawduck.bench.core.experiment import Experiment
from rawduck.bench.experiments.art import Art
from rawduck.bench.experiments.ceph.skyhook import Skyhook, SkyhookModel
from rawduck.bench.experiments.commits import Commits
from rawduck.bench.experiments.detach import Detach
from rawduck.bench.experiments.device.fdp import Fdp
from rawduck.bench.experiments.device.micro import Micro
from rawduck.bench.experiments.device.stripes import Stripes
from rawduck.bench.experiments.gpu.paths import GpuPaths
from rawduck.bench.experiments.grouping import Grouping
from rawduck.bench.experiments.load import Load
from rawduck.bench.experiments.paper import Passthrough, Strategies
from rawduck.bench.experiments.parquet import Parquet
from rawduck.bench.experiments.readers import Readers
from rawduck.bench.experiments.replay import Replay
from rawduck.bench.experiments.scaling import Scaling
from rawduck.bench.experiments.scan import Scan
from rawduck.bench.experiments.spill import Spill
from rawduck.bench.experiments.tpch import Tpch
from rawduck.bench.experiments.warm import Warm

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
        Replay,
        Parquet,
        Commits,
        Readers,
        Detach,
        Stripes,
        Fdp,
        Art,
        Scaling,
        Warm,
        GpuPaths,
        Skyhook,
        SkyhookModel,
    )
}
