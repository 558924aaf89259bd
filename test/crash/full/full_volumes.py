"""Fills small volumes in random histories and empties them again: `full_volumes.py --seed 1 --histories 40`.

Or `make test-full`. Exits with 0 when nothing that was acknowledged was lost, and every volume could be
emptied.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from emptying import finish, info
from history import History, Shape
from life import Broken
from steps import live


def run_history(
    seed: str, folder: Path, shape: Shape | None = None, verbose: bool = False
) -> tuple[Counter, str]:
    """Returns what was counted, and what went wrong. `verbose`: then it prints what was done."""
    history = History(seed, folder / "volume.rawduck", shape)
    try:
        history.begin_life()
        new = info(history)
        history.end_life()
        live(history)
        finish(history, new)
        return history.counts, ""
    except Broken as broken:
        if verbose:
            print("\n".join(history.log))
        return history.counts, str(broken)
    finally:
        history.close()


def kind_of(broken: str) -> str:
    first = broken.split(":")[0].split(" ")[0]
    return first if first in ("lost", "stuck") else "otherwise failed"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default=str(int(time.time())))
    parser.add_argument("--histories", type=int, default=40)
    parser.add_argument("--only", type=int, help="this one of them")
    parser.add_argument("--verbose", action="store_true", help="all that was done in those that fail")
    parser.add_argument("--folder", help="of the volumes; by default that of temporary files")
    return parser.parse_args()


def main() -> int:
    options = parse()
    total: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    begin = time.monotonic()
    numbers = range(options.histories) if options.only is None else [options.only]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for done, number in enumerate(numbers, 1):
            seed = f"{options.seed}.{number}"
            counts, what = run_history(seed, Path(folder), verbose=options.verbose)
            total += counts
            if what:
                broken[kind_of(what)] += 1
                print(f"FAILED seed {options.seed} --only {number}: {what}", flush=True)
            if done % 10 == 0:
                print(f"{done} histories, {sum(broken.values())} failed", flush=True)
    counted = ", ".join(f"{count} {what}" for what, count in sorted(total.items()))
    print(f"seed {options.seed}: {counted}; {time.monotonic() - begin:.0f} s")
    others = f", {broken['otherwise failed']} otherwise failed" if broken["otherwise failed"] else ""
    found = f"{total['refused']} refused, {broken['lost']} lost, {broken['stuck']} stuck"
    print(f"{len(numbers)} histories: {found}{others}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
