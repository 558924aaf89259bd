"""Pushed queries return what reading returns: the cases and seeds that once differed, then other seeds.

`make test-differential` does the same for longer.
"""

from __future__ import annotations

import itertools
import os
import random
from dataclasses import replace

import pytest
from rawduck.ceph.cluster import class_directory

from differential.judging.comparison import Outcome, difference
from differential.known import CASES, SEEDS
from differential.making.features import MUST_BE_PUSHED
from differential.making.queries import Maker
from differential.making.tables import ReadColumn, random_table
from differential.making.tree import Item, Piece, Query, Several, smaller
from differential.runner import Runner

FIXED = ("ci.0", "ci.1", "ci.2", "ci.3")
#: Of the batches after those. Always the same by default: a run that finds something new should not be one
#: that was about something else. New seeds are those of `make test-differential`.
SEED = os.environ.get("RAWDUCK_DIFFERENTIAL_SEED", "ci2")
#: As many as a fast machine has time for: without an end, a faster one would try seeds for the first time.
BATCHES = 16
SECONDS = float(os.environ.get("RAWDUCK_DIFFERENTIAL_SECONDS", "100"))


@pytest.fixture
def runner(cluster, tmp_path):
    if class_directory() is None:
        pytest.skip("no object class: rados/objclass.h or libpython was missing when the package was built")
    return Runner(cluster, tmp_path)


@pytest.mark.timeout(600)
def test_what_once_differed(runner):
    runner.run_known(len(CASES))
    for seed, number in SEEDS:
        runner.run_one(seed, number)
    assert not runner.findings.counts["differences"], runner.findings.describe()
    assert runner.findings.counts["comparisons"] >= 2 * len(CASES) + len(SEEDS)


@pytest.mark.timeout(600)
def test_random_queries(runner):
    print(f"seed {SEED}")
    seeds = itertools.chain(FIXED, (f"{SEED}.{number}" for number in range(BATCHES)))
    findings = runner.run(seeds, comparisons=10**9, seconds=SECONDS)
    print(findings.coverage.table())
    print(findings.progress())
    assert not findings.counts["differences"], f"seed {SEED}\n{findings.describe()}"
    assert not findings.coverage.never_pushed(MUST_BE_PUSHED)


def query_of(*rules: str, order: str = "set") -> Query:
    items = [Item(Piece("x"), f"c{number}", rule) for number, rule in enumerate(rules)]
    return Query("SELECT 1", items=Several("", ", ", items), order=order, keys=("c0",))


def outcome(*rows: tuple) -> Outcome:
    names = tuple(f"c{number}" for number in range(len(rows[0])))
    return Outcome(names, ("DOUBLE",) * len(names), list(rows))


@pytest.mark.parametrize(
    ("query", "one", "two", "same"),
    [
        (query_of("exact"), outcome((1,), (2,)), outcome((2,), (1,)), True),
        (query_of("exact", order="list"), outcome((1,), (2,)), outcome((2,), (1,)), False),
        (query_of("exact", "exact", order="keys"), outcome((1, 5)), outcome((1, 6)), True),
        (query_of("exact", "exact", order="keys"), outcome((1, 5)), outcome((2, 5)), False),
        (query_of("exact"), outcome((1,)), outcome((1,), (1,)), False),
        (query_of("exact"), outcome((None,)), outcome((0,)), False),
        (query_of("exact"), outcome((0.0,)), outcome((-0.0,)), False),
        (query_of("representative"), outcome((0.0,)), outcome((-0.0,)), True),
        (query_of("representative"), outcome(("0.0",)), outcome(("-0.0",)), True),
        (query_of("exact"), outcome((0.1 + 0.2,)), outcome((0.3,)), False),
        (query_of("sum"), outcome((0.1 + 0.2,)), outcome((0.3,)), True),
        (query_of("sum"), outcome((1.0,)), outcome((1.000001,)), False),
        (query_of("sum"), outcome((float("nan"),)), outcome((float("nan"),)), True),
        (query_of("sum"), outcome((float("inf"),)), outcome((1.0,)), False),
        (query_of("wild"), outcome((1.0,)), outcome((7.0,)), True),
        (query_of("wild"), outcome((1.0,)), outcome((None,)), False),
        (query_of("exact"), outcome((1,)), Outcome(error="ConversionException: x"), False),
        (query_of("exact"), Outcome(error="ConversionException: x"), Outcome(error="another"), True),
    ],
)
def test_comparison(query, one, two, same):
    assert (difference(query, one, two) == "") == same
    assert (difference(query, two, one) == "") == same


def test_types_are_compared():
    one, two = outcome((1,)), outcome((1,))
    two.types = ("INTEGER",)
    assert "INTEGER" in difference(query_of("exact"), one, two)


def test_queries_become_smaller():
    """A query in which one expression matters is reduced to little more than it."""
    items = Several("", ", ", [Item(Piece("a"), "c0"), Item(Piece("b"), "c1")], least=1)
    bad = Piece("bad", family="bool")
    condition = Piece("(", Piece("x AND ", bad, family="bool"), " OR y)", family="bool")
    query = Query(
        "SELECT ", items, " FROM t", Several(" WHERE ", " AND ", [Piece("z"), condition]), items=items
    )
    changed = True
    while changed:
        changed = False
        for candidate in smaller(query):
            if "bad" in candidate.sql():
                query, changed = candidate, True
                break
    assert query.sql() in ("SELECT a AS c0 FROM t WHERE bad", "SELECT b AS c1 FROM t WHERE bad")


def test_seeds_repeat():
    """The same seed makes the same tables and the same queries."""
    tables = [random_table(random.Random("seed"), "t", 300) for _ in range(2)]
    assert tables[0] == tables[1]
    read = tuple(ReadColumn(*column) for column in (("k", "BIGINT", "int"), ("s", "VARCHAR", "text")))
    makers = [Maker(random.Random("seed"), [replace(table, read=read)] * 2) for table in tables]
    queries = [[maker.query().statements() for _ in range(50)] for maker in makers]
    assert queries[0] == queries[1]
