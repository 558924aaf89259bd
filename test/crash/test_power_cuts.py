"""A few hundred power cuts for every day; `make test-crash` makes thousands."""

from __future__ import annotations

import pytest
from campaign import run_cuts, run_every_event, run_every_pair


def check(result) -> None:
    print(result.faults())
    assert not result.failures, "\n".join(result.failures)


@pytest.mark.parametrize("seed", range(4))
def test_random_cuts(seed):
    check(run_cuts(f"ci{seed}", 75, threaded_share=0.5))


def test_every_event_of_a_small_workload():
    result = run_every_event("ci")
    check(result)
    assert result.counts["power cuts"] >= result.counts["events recorded"] - 6


def test_every_pair_of_events_of_two_mounts():
    check(run_every_pair("ci"))
