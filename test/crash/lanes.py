"""The workload's scripts, with what a database must hold after each step.

A lane is a sequence of transactions on tables of its own, or of operations on a file of its own. It never
depends on another lane, so its state after n acknowledged steps is known beforehand: stock DuckDB runs the
same steps in memory and is asked for a digest after each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import duckdb

ABSENT = "absent"
#: Of a table with an index, or one that was altered, rows that hold a string get another one. DuckDB's own
#: recovery forgets such an update of a NULL: test_duckdb_replay.py.
UPDATED = " AND v IS NOT NULL"


@dataclass(frozen=True)
class Step:
    """One thing that is acknowledged as a whole. `kind`: transaction, rollback, create, remove or export."""

    kind: str
    statements: tuple[str, ...] = ()


@dataclass
class Lane:
    """`states[n]` is the digest after n steps. `file` is set for a lane that owns a whole file."""

    name: str
    database: str
    steps: list[Step] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    file: str = ""

    @property
    def is_export(self) -> bool:
        return self.file.endswith(".parquet")


class TableScript:
    """Draws the transactions of a lane: tables are created, filled, changed, indexed, altered, dropped.

    A table that gets an index after rows were deleted keeps its rows from then on. Deletes before and after
    an index, while a transaction of another lane runs, make DuckDB stop at its end: test_duckdb_replay.py.
    """

    def __init__(self, draw: random.Random, database: str, lane: str, rows_most: int) -> None:
        self._draw = draw
        self._prefix = f"{database}.{lane}_t"
        self._rows_most = rows_most
        self._tables: dict[int, dict] = {}
        self._made = 0
        self._transactions = 0

    def transaction(self) -> Step:
        self._transactions += 1
        before = {number: dict(table) for number, table in self._tables.items()}
        statements = [self._statement() for _ in range(self._draw.choice((1, 1, 1, 2, 4)))]
        if self._draw.random() < 0.1:
            self._tables = before
            return Step("rollback", tuple(statements))
        return Step("transaction", tuple(statements))

    def _statement(self) -> str:
        if not self._tables or (len(self._tables) < 3 and self._draw.random() < 0.15):
            return self._create()
        number = self._draw.choice(list(self._tables))
        kinds = (
            (self._small_insert, 40),
            (self._bulk_insert, 12),
            (self._update, 18),
            (self._delete, 14),
            (self._index, 6),
            (self._alter, 3),
            (self._drop, 4),
        )
        action = self._draw.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        return action(number)

    def _create(self) -> str:
        self._made += 1
        key = self._draw.choice((" PRIMARY KEY", ""))
        self._tables[self._made] = {
            "next": 0,
            "key": bool(key),
            "indexes": 0,
            "columns": 0,
            "deleted": 0,
            "keeps rows": False,
        }
        return f"CREATE TABLE {self._prefix}{self._made} (k BIGINT{key}, v VARCHAR, w DOUBLE)"

    def _insert(self, number: int, rows: int, text: str) -> str:
        table = self._tables[number]
        first, table["next"] = table["next"], table["next"] + rows
        return (
            f"INSERT INTO {self._prefix}{number} (k, v, w) "
            f"SELECT r, {text}, r / 7 FROM range({first}, {first + rows}) g(r)"
        )

    def _small_insert(self, number: int) -> str:
        text = self._draw.choice(("'row ' || r", "repeat('row ' || r, 60)", "NULL"))
        return self._insert(number, self._draw.randint(1, 20), text)

    def _bulk_insert(self, number: int) -> str:
        return self._insert(number, self._draw.randint(500, self._rows_most), "md5(r::VARCHAR)")

    def _range(self, number: int) -> str:
        most = max(self._tables[number]["next"], 1)
        first = self._draw.randrange(most)
        return f"k BETWEEN {first} AND {first + self._draw.choice((0, 5, most // 3))}"

    def _update(self, number: int) -> str:
        table = self._tables[number]
        value = self._draw.choice(("v = 'changed ' || k", "w = w + 1", "v = NULL, w = k"))
        where = self._range(number)
        if value.startswith("v = 'changed") and (table["key"] or table["indexes"] or table["columns"]):
            where += UPDATED
        return f"UPDATE {self._prefix}{number} SET {value} WHERE {where}"

    def _delete(self, number: int) -> str:
        table = self._tables[number]
        if table["keeps rows"]:
            return self._small_insert(number)
        table["deleted"] = self._transactions
        return f"DELETE FROM {self._prefix}{number} WHERE {self._range(number)}"

    def _index(self, number: int) -> str:
        table = self._tables[number]
        if table["key"] or table["columns"] or table["deleted"] == self._transactions:
            return self._small_insert(number)
        table["keeps rows"] = table["deleted"] > 0
        name = f"{self._prefix.partition('.')[2]}{number}_i{table['indexes']}"
        table["indexes"] += 1
        return f"CREATE INDEX {name} ON {self._prefix}{number} (k)"

    def _alter(self, number: int) -> str:
        table = self._tables[number]
        if table["key"] or table["indexes"]:
            return self._small_insert(number)
        table["columns"] += 1
        return f"ALTER TABLE {self._prefix}{number} ADD COLUMN c{table['columns']} INTEGER DEFAULT {number}"

    def _drop(self, number: int) -> str:
        del self._tables[number]
        return f"DROP TABLE {self._prefix}{number}"


def table_lane(draw: random.Random, database: str, name: str, steps: int, rows_most: int) -> Lane:
    script = TableScript(draw, database, name, rows_most)
    return Lane(name, database, [script.transaction() for _ in range(steps)])


def file_lane(draw: random.Random, name: str, steps: int) -> Lane:
    """A database that is made, filled, removed and made anew, as a whole."""
    lane = Lane(name, name, file=f"{name}.duckdb")
    while len(lane.steps) < steps:
        script = TableScript(draw, name, f"{name}_{len(lane.steps)}", 2000)
        lane.steps.append(Step("create"))
        lane.steps += [script.transaction() for _ in range(draw.randint(1, 4))]
        lane.steps.append(Step("remove"))
    return lane


def export_lane(draw: random.Random, name: str, steps: int) -> Lane:
    """A Parquet file that is replaced by moving a new one over it."""
    lane = Lane(name, "", file=f"{name}.parquet")
    for number in range(steps):
        rows = draw.randint(1, 20000)
        query = f"SELECT r AS k, {number} AS step, md5(r::VARCHAR) AS v FROM range({rows}) g(r)"
        lane.steps.append(Step("export", (query,)))
    return lane


def digest(connection: duckdb.DuckDBPyConnection, lane: Lane) -> str:
    """Definitions, row counts and contents of a lane's tables. The database is attached."""
    owned = "WHERE database_name = ? AND starts_with(table_name, ?)"
    definitions = connection.execute(
        f"SELECT table_name, sql FROM duckdb_tables() {owned} UNION ALL "
        f"SELECT table_name, sql FROM duckdb_indexes() {owned} ORDER BY ALL",
        [lane.database, f"{lane.name}_"] * 2,
    ).fetchall()
    if not definitions:
        return "empty"
    contents = " UNION ALL ".join(
        f"SELECT '{name}', count(*), sum(hash(t)), count(DISTINCT k) FROM {lane.database}.{name} t"
        for name in sorted({name for name, _ in definitions})
    )
    return repr((definitions, connection.execute(f"{contents} ORDER BY 1").fetchall()))


def export_digest(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """Contents of an exported relation: a query, or a path of a Parquet file in quotes."""
    return repr(connection.execute(f"SELECT count(*), sum(hash(t)) FROM ({query}) t").fetchall())


def compute_states(lanes: list[Lane]) -> None:
    """Runs every step on stock DuckDB in memory and notes what is there afterwards."""
    with duckdb.connect(":memory:", config={"threads": 1}) as stock:
        stock.execute("SET python_enable_replacements = false")
        for database in {lane.database for lane in lanes if lane.database}:
            stock.execute(f"ATTACH ':memory:' AS {database}")
        for lane in lanes:
            lane.states = [ABSENT if lane.file else digest(stock, lane)]
            for step in lane.steps:
                lane.states.append(_state_after(stock, lane, step))


def _state_after(stock: duckdb.DuckDBPyConnection, lane: Lane, step: Step) -> str:
    if step.kind == "export":
        return export_digest(stock, step.statements[0])
    if step.kind == "remove":
        stock.execute(f"DETACH {lane.database}; ATTACH ':memory:' AS {lane.database}")
        return ABSENT
    if step.kind == "transaction":
        stock.execute("BEGIN")
        for statement in step.statements:
            stock.execute(statement)
        stock.execute("COMMIT")
    return digest(stock, lane)
