"""A few hundred power cuts for every day; `make test-crash` makes thousands."""

from __future__ import annotations

import duckdb
import pytest
from campaign import run_cuts, run_every_event, run_every_pair
from lanes import Lane, digest


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


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE a.l0_t1 ADD COLUMN c INTEGER", "CREATE INDEX i ON a.l0_t1 (k)", "DROP TABLE a.l0_t1"],
)
def test_the_oracle_sees_definitions_of_empty_tables(change):
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS a")
        connection.execute("CREATE TABLE a.l0_t1 (k BIGINT)")
        lane = Lane("l0", "a")
        before = digest(connection, lane)
        connection.execute(change)
        assert digest(connection, lane) != before
