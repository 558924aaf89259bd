"""`rawduck bench paper-passthrough` and `paper-strategies`: the experiments of "DuckDB on xNVMe", a scan of
TPC-H customer at growing scale factor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rawduck import paths
from rawduck.bench.core import modes
from rawduck.bench.core.case import WALL, Case
from rawduck.bench.core.experiment import Experiment
from rawduck.bench.core.picture import Picture
from rawduck.bench.core.results import Results

_SCAN = (
    "SELECT count(*), sum(c_custkey), sum(strlen(c_name)), sum(strlen(c_address)), sum(c_nationkey), "
    "sum(strlen(c_phone)), sum(c_acctbal), sum(strlen(c_mktsegment)), sum(strlen(c_comment)) FROM customer"
)
_SCALES = (1, 2, 5, 10, 20, 50, 100)
_QUICK_SCALES = (0.5, 1, 2)


class _CustomerScans(Experiment):
    """Scans of every column of customer, at scale factors up to the chosen one."""

    scale = 20.0
    quick_scale = 2.0
    runs = 15
    quick_runs = 5

    def ways(self) -> list[modes.DuckMode]:
        raise NotImplementedError

    def cases(self) -> Iterator[Case]:
        most = self.bench.scale(self)
        steps = _QUICK_SCALES if self.bench.options.quick else _SCALES
        for scale in [step for step in steps if step < most] + [most]:
            database = self.bench.database(scale, "customer")
            yield Case(
                f"sf{scale:g}",
                f"customer, scale factor {scale:g}",
                {"scale": scale, "query": _SCAN},
                modes.with_config(self.ways(), threads=self.bench.options.threads),
                lambda mode, database=database: self.bench.query(mode, database, _SCAN),
                lambda database=database: database.prepare_volume(self.bench.volume),
            )

    def plots(self, results: Results, folder: Path) -> list[Picture]:
        from rawduck.bench.core import plots

        scales = {case.name: float(case.settings["scale"]) for case in results.cases}
        path = folder / f"{self.name}.png"
        return [plots.lines(results, path, WALL, scales, "TPC-H scale factor", "Cold scan of customer")]


class Passthrough(_CustomerScans):
    name = "paper-passthrough"
    title = "NVMe passthrough, on and off"
    text = (
        "Experiment 1 of the paper: thread-owned queues, once with NVMe commands through io_uring_cmd, past "
        "the block layer, and once with io_uring through it. The null hypothesis is that io_uring without "
        "passthrough is at least as fast: it is rejected where p < 0.01 in the row of passthrough."
    )

    def ways(self) -> list[modes.DuckMode]:
        threads = {"nvme_queues": "mode=thread"}
        return [
            modes.make(
                "io_uring",
                "io_uring",
                modes.ON_VOLUME,
                extension_settings={"nvme_engine": "io_uring", **threads},
            ),
            modes.make(
                "io_uring_cmd",
                "io_uring_cmd (passthrough)",
                modes.ON_VOLUME,
                extension_settings={"nvme_engine": "io_uring_cmd", **threads},
                optional=True,
            ),
        ]


class Strategies(_CustomerScans):
    name = "paper-strategies"
    title = "Queue strategies against stock DuckDB"
    text = (
        "Experiment 2 of the paper: stock DuckDB, a file through xNVMe, and the four ways to share queues on "
        "a volume, with the engine that the target gets by itself (passthrough on /dev/ngXnY). On a PCI "
        "function (vfio:...) that is rawduck's own driver, and SPDK follows where libxnvme has it. The null "
        "hypothesis is that stock is not slower: it is rejected where p < 0.01. As in the paper's DuckDB, no "
        "mode reads ahead, except for the last row, which is rawduck as it comes."
    )

    def ways(self) -> list[modes.DuckMode]:
        bare = {"nvme_prefetch": "false"}
        return [
            modes.make(modes.STOCK, "stock, default"),
            modes.make(
                "xnvme_file",
                "xNVMe file",
                modes.ON_FILE_DIRECTLY,
                extension_settings={"nvme_engine": "xnvme:io_uring", **bare},
                optional=True,
            ),
            *(
                modes.make(
                    mode, title, modes.ON_VOLUME, extension_settings={"nvme_queues": f"mode={mode}", **bare}
                )
                for mode, title in (
                    ("sync", "synchronous"),
                    ("single", "single queue"),
                    ("pool", "queue pool"),
                    ("thread", "thread queues"),
                )
            ),
            *self._spdk(bare),
            modes.make(modes.VOLUME, "thread queues, reading ahead", modes.ON_VOLUME),
        ]

    def _spdk(self, settings: dict[str, str]) -> list[modes.DuckMode]:
        if not paths.is_function(self.bench.options.target):
            return []
        settings = {"nvme_engine": "xnvme:spdk", "nvme_queues": "mode=thread", **settings}
        return [
            modes.make(
                "spdk", "thread queues, SPDK", modes.ON_VOLUME, extension_settings=settings, optional=True
            )
        ]
