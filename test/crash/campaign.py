"""Power cuts by the thousand: of recorded workloads, of the recovery after them, of what was written then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import duckdb
from damage import REFUSED_SHARE, Damage, Refusal
from disk import Disk
from kept import still_there
from metadata import Metadata
from verify import Broken, check_volume, count_faults, match, recover
from workload import NO_BIAS, Bias, History, Life, Plan, connect, draw_plan, record

BROKEN = ("lost", "resurrected", "unopenable")
#: Damage that takes something with it.
REFUSED = (
    "volumes with both superblocks damaged",
    "log records damaged",
    "metadata pages damaged",
    "data LBAs made unreadable",
)
#: Of the workloads: with one thread for each lane.
THREADED_SHARE = 0.4
#: Of each lane, in the recorded workload.
STEPS = 24
CUTS_PER_WORKLOAD = 250
#: Of each lane, where every event is cut.
SMALL_STEPS = 2
#: In each of two lives, where every pair of them is cut.
PAIR_EVENTS = 14
#: Three writes, each flushed.
FORMAT_EVENTS = 6
#: Cut after cut of one volume, at most.
LIVES = 4


@dataclass
class Result:
    counts: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.counts.update(other.counts)
        self.failures += other.failures

    def faults(self) -> str:
        return ", ".join(
            f"{count} {name}" for name, count in sorted(self.counts.items()) if name not in BROKEN
        )

    def broken(self) -> str:
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in BROKEN)

    def repairs(self) -> str:
        names = ("repairs", "superblocks damaged", *REFUSED)
        return ", ".join(f"{self.counts[name]} {name}" for name in names)


class Campaign:
    """Cuts one workload in many places. The same seed gives the same workload and the same cuts, except that
    threads make each recording of theirs different."""

    def __init__(self, seed: str, threaded: bool, steps: int = STEPS, bias: Bias = NO_BIAS) -> None:
        self.plan = draw_plan(seed, steps + 2 * LIVES, threaded, bias)
        self._steps = steps
        self.result = Result()
        self._connection = connect(self.plan)

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *_) -> None:
        self._connection.close()

    def run(self, cuts: int, stop: bool = False) -> Result:
        """About that many cuts; with `stop`, none after one that failed."""
        disk, history = record(self.plan, "recorded", self._steps)
        events = disk.events(self._connection)
        self.result.counts["workloads"] += 1
        self.result.counts["events recorded"] += events
        for number, at in enumerate(self._moments(events, cuts)):
            if stop and self.result.failures:
                break
            self._cut_and_again(disk, history, at, number)
        return self.result

    def run_pairs(self, most: int, stop: bool = False) -> Result:
        """Every pair of a cut among the first events behind formatting and one among the first of the next
        life; with `stop`, none after one that failed."""
        disk, history = record(self.plan, "recorded", self._steps)
        self.result.counts["workloads"] += 1
        for at in range(FORMAT_EVENTS, FORMAT_EVENTS + most):
            draw = random.Random(f"{self.plan.seed} {at}")
            seed = draw.randrange(2**32)
            survivor, _ = disk.cut(self._connection, at, seed, "first")
            next_history = self._relive(survivor, history, at, draw)
            for again in range(min(most, survivor.events(self._connection)) + 1):
                if stop and self.result.failures:
                    return self.result
                self._cut_and_again(survivor, next_history, again, (at + 1) * 1000 + again)
        return self.result

    def _moments(self, events: int, cuts: int) -> Iterator[int]:
        """Every event of a short workload, otherwise a random choice, with another cut after every second one
        in mind; in ascending order, which is fast. Before the last event of formatting there is no volume."""
        moments = range(FORMAT_EVENTS, events + 1)
        if len(moments) <= cuts // 2:
            return iter(moments)
        return iter(sorted(random.Random(f"{self.plan.seed} cuts").sample(moments, max(cuts // 2, 1))))

    def _cut_and_again(self, disk: Disk, history: History, at: int, number: int) -> None:
        """A cut, recovery, more writes, and perhaps a cut of those: of a mount, of a recovery, of work."""
        draw = random.Random(f"{self.plan.seed} {number}")
        trail = []
        for life_number in range(LIVES):
            seed = draw.randrange(2**32)
            trail.append(f"event {at} with seed {seed}")
            try:
                survivor, report = disk.cut(self._connection, at, seed, f"life{life_number}")
                count_faults(self.result.counts, report)
                self._damage(disk, survivor, history, at, seed)
                next_history = self._relive(survivor, history, at, draw)
            except Broken as broken:
                self.result.counts[broken.kind] += 1
                cuts = ", then ".join(trail)
                self.result.failures.append(
                    f"seed {self.plan.seed}, {self.plan.geometry}, cut after {cuts}: {broken}"
                )
                self._connection.close()
                self._connection = connect(self.plan)
                return
            if draw.random() < 0.5:
                return
            disk, history = survivor, next_history
            at = draw.randrange(disk.events(self._connection) + 1)
            self.result.counts["cuts of a recovery or of what followed it"] += 1

    def _damage(self, disk: Disk, survivor: Disk, history: History, at: int, seed: int) -> None:
        """Damages and repairs what a cut left; and what the same cut leaves, beyond repair."""
        draw = random.Random(f"{self.plan.seed} {at} {seed} damage")
        if draw.random() < REFUSED_SHARE:
            victim, _ = disk.cut(self._connection, at, seed, "victim")
            device = (self._connection, victim, self.plan, draw, self.result.counts)
            Refusal(*device, history=history, at=at).run()
        damage = Damage(self._connection, survivor, self.plan, draw, self.result.counts)
        damage.lose_nothing(history.sequence)

    def _relive(self, disk: Disk, history: History, at: int, draw: random.Random) -> History:
        """Checks what is there, and goes on working with it."""
        sequence = Metadata(self._connection, disk, self.plan.geometry).newest().sequence
        check_volume(self._connection, disk)
        life = Life(self._connection, disk, self.plan, {})
        life.history.sequence = sequence
        next_life(self._connection, life, disk, self.plan, history, at, draw)
        return life.history


def next_life(
    connection: duckdb.DuckDBPyConnection,
    life: Life,
    disk: Disk,
    plan: Plan,
    history: History,
    at: int,
    draw: random.Random,
) -> None:
    """Compares what is there with what the life before, cut after `at` events, allows; goes on working."""
    found = recover(connection, life, disk, plan)
    for lane in plan.lanes:
        life.history.start[lane.name] = match(lane, found[lane.name], history, at)
    life.history.kept, broken = still_there(connection, disk, plan.lanes, history.kept, at)
    if broken:
        raise Broken(*broken[0])
    try:
        # The databases of the tables may not have been there yet.
        for database in "ab":
            if found[f"l{'ab'.index(database)}"] == "absent":
                life.attach(database)
        life.interleaved({lane.name: draw.randrange(3) for lane in plan.lanes}, draw)
        life.detach()
    except duckdb.Error as error:
        raise Broken("unopenable", f"it takes no further writes: {error}") from error


def run_every_event(seed: str, stop: bool = False) -> Result:
    """Cuts after each event of a workload of a few steps."""
    with Campaign(f"{seed}.small", threaded=False, steps=SMALL_STEPS) as campaign:
        return campaign.run(cuts=10**6, stop=stop)


def run_every_pair(seed: str, stop: bool = False) -> Result:
    """Cuts after each of the first events behind formatting, and each time again after each of the first
    events of the next life: the superblocks change in these."""
    with Campaign(f"{seed}.pairs", threaded=False, steps=1, bias=Bias(torn=True)) as campaign:
        return campaign.run_pairs(PAIR_EVENTS, stop)


def run_cuts(
    seed: str,
    cuts: int,
    threaded_share: float = THREADED_SHARE,
    stop: bool = False,
    bias: Bias = NO_BIAS,
) -> Result:
    """About that many cuts, of as many workloads as it takes."""
    total = Result()
    number = 0
    while total.counts["power cuts"] < cuts and not (stop and total.failures):
        threaded = random.Random(f"{seed} {number} kind").random() < threaded_share
        with Campaign(f"{seed}.{number}", threaded, bias=bias) as campaign:
            result = campaign.run(min(CUTS_PER_WORKLOAD, cuts - total.counts["power cuts"]), stop)
        result.counts["workloads with threads"] += threaded
        total.add(result)
        number += 1
    return total
