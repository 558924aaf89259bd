"""Power cuts until there were CUTS of them: `run.py --seed 1 --cuts 20000 --jobs 2`, or `make test-crash`.

Prints the seed, the faults that were injected, what was damaged and repaired, and what was found. Exits with
0 when nothing was lost, nothing came back and everything could be opened, or was refused where it had to be.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from campaign import THREADED_SHARE, Result, run_cuts, run_every_event, run_every_pair
from workload import Bias

#: Cuts of one task of a process: one workload.
BATCH = 250
#: So many small workloads come first, cut after every event and in every pair of the first events.
EXHAUSTIVE = 2


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--cuts", type=int, default=20000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--threaded", action="store_true", help="only workloads with threads")
    parser.add_argument("--torn", action="store_true", help="only LBAs of 512 bytes, torn anywhere")
    parser.add_argument("--wal-autocheckpoint", metavar="SIZE", help="for all workloads, such as 20KB")
    parser.add_argument("--stop-at-failure", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parse()
    os.environ["RAWDUCK_TEST_FUNCTIONS"] = "1"  # nvme_simulate(), also in the processes of the pool
    print(f"seed {options.seed}, {options.cuts} cuts", flush=True)
    begin = time.monotonic()
    total = Result()
    sizes = [min(BATCH, options.cuts - first) for first in range(0, options.cuts, BATCH)]
    share = 1.0 if options.threaded else THREADED_SHARE
    bias = Bias(options.torn, options.wal_autocheckpoint)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        batches = [
            pool.submit(every, f"{options.seed}.{number}", options.stop_at_failure)
            for number in range(0 if options.threaded else EXHAUSTIVE)
            for every in (run_every_pair, run_every_event)
        ]
        batches += [
            pool.submit(run_cuts, f"{options.seed}.{number}", size, share, options.stop_at_failure, bias)
            for number, size in enumerate(sizes)
        ]
        for done in as_completed(batches):
            result = done.result()
            total.add(result)
            for failure in result.failures:
                print(f"FAILED {failure}", flush=True)
            print(f"{total.counts['power cuts']} cuts, {total.broken()}", flush=True)
            if total.failures and options.stop_at_failure:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print(f"seed {options.seed}: {total.faults()}, {time.monotonic() - begin:.0f} s")
    print(f"{total.broken()}; {total.repairs()}")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
