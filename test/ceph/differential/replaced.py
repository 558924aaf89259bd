"""Objects that are replaced while queries run: a result is that of one state of each object, or an error."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from differential.judging.comparison import Outcome
from differential.making.tree import Item, Piece, Query, Several

if TYPE_CHECKING:
    from differential.batch import Batch

#: DuckDB uses the statistics of one object alone to drop filters.
OBJECTS = (1, 3)
STATES = 4
QUERIES = 25
#: Of batches.
SHARE = 0.25
PAUSE_SECONDS_MAX = 0.02
MODES = ("never", "always", "shared", "filters", "auto")

#: Values of states do not overlap: statistics of one state remove every row of another.
STATE = """
SELECT {object} AS object, {state} AS state, {state} * 10000 + i AS x, 'state' || {state} AS label,
       hash(i + {state}) % 5 AS g
FROM range({rows}) AS r(i)"""
CONDITIONS = (
    "true",
    "x >= {low}",
    "x BETWEEN {low} AND {low} + 9999",
    "x < {low} + 50 OR g = 3",
    "label = 'state{state}'",
    "label <> 'state{state}' AND g > 1",
)
#: With a column of every row's object and state, and without.
ROWS = "SELECT object, state, x, g FROM {table} WHERE {condition}"
GROUPS = (
    "SELECT object, state, count(*) AS n, sum(x) AS s, min(label) AS l FROM {table} WHERE {condition} "
    "GROUP BY object, state"
)
TOTAL = (
    "SELECT count(*) AS n, coalesce(sum(x), 0) AS s, coalesce(sum(g), 0) AS t FROM {table} WHERE {condition}"
)


def compare(batch: Batch) -> None:
    rng = random.Random(f"{batch.seed} replaced")
    if rng.random() >= SHARE:
        return
    batch.client.configure({}, rng.choice((1, 4)))
    objects = rng.choice(OBJECTS)
    contents = prepare(batch, rng, objects)
    with writer(batch, contents, rng):
        for number in range(QUERIES):
            text = rng.choice((ROWS, GROUPS, TOTAL))
            state = rng.randrange(STATES)
            condition = rng.choice(CONDITIONS).format(low=state * 10000, state=state)
            mode = rng.choice(MODES)
            batch.report_query(f"replaced {number}", text.format(table="replaced", condition=condition))
            outcome = batch.client.run(plain(text.format(table="replaced", condition=condition)), mode)
            batch.counts["comparisons"] += 1
            batch.counts["pushed"] += batch.coverage.count({"replaced objects"}, mode)
            wrong = verify(batch, outcome, text, condition, objects)
            if wrong:
                batch.found(
                    f"replaced {number}", mode, wrong, text.format(table="replaced", condition=condition)
                )


def prepare(batch: Batch, rng: random.Random, objects: int) -> dict[tuple[int, int], bytes]:
    """Writes the first states, and a table with the rows of all states. Returns the bytes of each state."""
    con = batch.client.con
    con.execute("CREATE TABLE states (object INTEGER, state INTEGER, x BIGINT, label VARCHAR, g BIGINT)")
    contents = {}
    for number, state in itertools.product(range(objects), range(STATES)):
        select = STATE.format(object=number, state=state, rows=rng.choice((1, 40, 3000, 9000)))
        con.execute(f"INSERT INTO states {select}")
        file = batch.store.folder / f"replaced{number}_{state}.parquet"
        batch.writer.execute(f"COPY ({select}) TO '{file}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
        contents[number, state] = file.read_bytes()
        file.unlink()
    for number in range(objects):
        batch.store.put(f"replaced/{number}.parquet", contents[number, 0])
    con.execute(f"CREATE VIEW replaced AS FROM read_parquet('{batch.data_prefix}/replaced/*.parquet')")
    return contents


@contextmanager
def writer(batch: Batch, contents: dict[tuple[int, int], bytes], rng: random.Random) -> Iterator[None]:
    """Replaces objects in another thread."""
    stop = threading.Event()
    order = random.Random(rng.random())

    def replace() -> None:
        while not stop.wait(order.random() * PAUSE_SECONDS_MAX):
            number, state = order.choice(list(contents))
            batch.store.put(f"replaced/{number}.parquet", contents[number, state])

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def plain(text: str) -> Query:
    items = Several("", ", ", [Item(Piece("x"), "x")], least=1)
    return Query(text, items=items)


def verify(batch: Batch, outcome: Outcome, text: str, condition: str, objects: int) -> str:
    """Empty when the result is right."""
    if outcome.rows is None:
        batch.counts["objects were replaced"] += 1
        return "" if "replaced" in outcome.error.split("\n")[0] else f"fails: {outcome.error}"
    con = batch.client.con
    if text == TOTAL:
        parts = f"SELECT object, state, count(*) FILTER (WHERE {condition}), " + ", ".join(
            f"coalesce(sum({column}) FILTER (WHERE {condition}), 0)" for column in ("x", "g")
        )
        known = con.execute(f"{parts} FROM states GROUP BY object, state ORDER BY ALL").fetchall()
        choices = [[row[2:] for row in known if row[0] == number] for number in range(objects)]
        totals = {tuple(map(sum, zip(*choice, strict=True))) for choice in itertools.product(*choices)}
        return "" if tuple(outcome.rows[0]) in totals else f"no states of the objects give {outcome.rows[0]}"
    known = by_object(con.execute(text.format(table="states", condition=condition)).fetchall())
    for number, states in by_object(outcome.rows).items():
        for state, rows in states.items():
            if len(states) > 1:
                return f"rows of {len(states)} states of object {number}"
            right = known.get(number, {}).get(state, [])
            if sorted(rows) != sorted(right):
                return f"{len(rows)} of {len(right)} rows of state {state} of object {number}"
    missing = set(range(objects)) - set(by_object(outcome.rows))
    wrong = [number for number in missing if len(known.get(number, {})) == STATES]
    return f"no row of object {wrong[0]}" if wrong else ""


def by_object(rows: list[tuple]) -> dict[int, dict[int, list[tuple]]]:
    """Rows by object and state."""
    found: dict[int, dict[int, list[tuple]]] = {}
    for row in rows:
        found.setdefault(row[0], {}).setdefault(row[1], []).append(row)
    return found
