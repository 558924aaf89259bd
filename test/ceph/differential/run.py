"""Compares pushed queries with read ones: `run.py --seed 1 --comparisons 100000`; `make test-differential`.

Starts a cluster of its own. Prints the seed, progress, the differences, what was pushed, and a closing line.
Exits with 0 when nothing differed.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rawduck.ceph.cluster import Cluster, Options, class_directory

from differential.making.features import MUST_BE_PUSHED
from differential.runner import QUERIES, Runner

ROOT = Path(__file__).resolve().parents[3]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--comparisons", type=int, default=100000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--first", type=int, default=0, help="the batch to begin with, to go on with a seed")
    parser.add_argument("--batch", help="only this batch, such as 1.17")
    parser.add_argument("--queries", type=int, default=QUERIES, help="per batch")
    parser.add_argument(
        "--cluster", type=Path, help="the directory of a running cluster with pools `data` and `coded`"
    )
    parser.add_argument("--scripts", type=Path, default=ROOT / "build" / "differential")
    parser.add_argument(
        "--itself",
        action="store_true",
        help="compare reading with reading, which shows what is not determined; nothing may differ",
    )
    return parser.parse_args()


def main() -> int:
    options = parse()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # the cluster is taken down, also under nohup
    print(f"seed {options.seed}, {options.comparisons} comparisons", flush=True)
    directory = options.cluster or Path(tempfile.mkdtemp(prefix="rd-"))
    cluster = Cluster(directory)
    if not options.cluster:
        cluster.up(Options(osds=3, copies=2), class_directory())
        cluster.create_pool("data")
        cluster.create_pool("coded", erasure_coded=True)
    try:
        runner = Runner(cluster, options.scripts, "itself" if options.itself else "all")
        every = (f"{options.seed}.{number}" for number in itertools.count(options.first))
        seeds = iter([options.batch]) if options.batch else every
        findings = runner.run(seeds, options.comparisons, options.seconds, options.queries)
    finally:
        if not options.cluster:
            cluster.down()
    print(findings.coverage.table())
    print(findings.describe())
    never = findings.coverage.never_pushed(MUST_BE_PUSHED)
    if never:
        print(f"never pushed: {', '.join(never)}")
    print(findings.progress())
    print(findings.closing_line())
    return 1 if findings.counts["differences"] or (never and not options.batch and not options.itself) else 0


if __name__ == "__main__":
    sys.exit(main())
