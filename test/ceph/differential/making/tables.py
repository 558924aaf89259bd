"""Random tables: what their objects contain, and how they are written."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
from class_protocol import Pool

from differential.making.column_types import (
    Values,
    decimal,
    family_of,
    integer,
    other_type,
    random_values,
    temporal,
    text,
)

#: In prefixes: the pool of an object.
POOL = "<pool>"
POOLS = ("data", "coded")


@dataclass(frozen=True)
class Column:
    """`null_percent`: share of NULLs. `salt`: makes the values of columns differ."""

    name: str
    values: Values
    null_percent: int
    salt: int

    def expression(self, stored_type: str) -> str:
        value = self.values.expression(self.salt)
        if stored_type != self.values.type:
            value = f"TRY_CAST({value} AS {stored_type})"
        if self.null_percent:
            value = (
                f"CASE WHEN hash(i + {self.salt + 1}) % 100 < {self.null_percent} THEN NULL ELSE {value} END"
            )
        return value


@dataclass(frozen=True)
class Object:
    """One Parquet object. `stored`: the type of each column that it has, in its order."""

    path: str  # below the prefix
    first_row: int
    rows: int
    stored: tuple[tuple[str, str], ...]
    order_by: str
    row_group_rows: int
    codec: str
    direct: bool  # written by COPY TO 'rados://…'; otherwise a file that is put into the pool
    pool: str  # OSDs cannot answer for objects of an erasure-coded one: the client reads them

    def at(self, prefix: str) -> str:
        return f"{prefix}/{self.path}".replace(POOL, self.pool)


@dataclass(frozen=True)
class ReadColumn:
    """A column as read_parquet returns it, or a field of one."""

    name: str
    type: str
    family: str
    wild: bool = False


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    objects: tuple[Object, ...]
    options: str = ""  # of read_parquet
    read: tuple[ReadColumn, ...] = field(default=())

    def select(self, an_object: Object) -> str:
        """The rows of an object."""
        by_name = {column.name: column for column in self.columns}
        listed = ", ".join(f"{by_name[name].expression(kind)} AS {name}" for name, kind in an_object.stored)
        end = an_object.first_row + an_object.rows
        text = f"SELECT {listed} FROM range({an_object.first_row}, {end}) AS r(i)"
        return text + (f" ORDER BY {an_object.order_by}" if an_object.order_by else "")

    def source(self, prefix: str) -> str:
        """The call of read_parquet."""
        paths = ", ".join(f"'{an_object.at(prefix)}'" for an_object in self.objects)
        return f"read_parquet([{paths}]{self.options})"

    def view(self, prefix: str) -> str:
        return f"CREATE OR REPLACE VIEW {self.name} AS FROM {self.source(prefix)}"

    def copy(self, an_object: Object, path: str) -> str:
        # The client's 'auto' writes an enumeration's dictionary; the stock codec must be named for others.
        options = f"FORMAT parquet, ROW_GROUP_SIZE {an_object.row_group_rows}, CODEC '{an_object.codec}'"
        return f"COPY ({self.select(an_object)}) TO '{path}' ({options})"


def key_column() -> Column:
    """Different in each row, so that orders can be total."""
    return Column("k", Values("BIGINT", "{i}"), 0, 0)


#: Chances that objects of a table differ in their columns.
DIFFERENT_TYPES = 0.25
MISSING_COLUMNS = 0.04
SEVERAL_POOLS = 0.15


def random_columns(rng: random.Random, name: str) -> list[Column]:
    """Some of the types that most queries need, and others."""
    usual = [
        integer(rng, rng.choice(("SMALLINT", "INTEGER", "BIGINT", "BIGINT", "UINTEGER"))),
        text(rng),
        text(rng),
        temporal(rng, rng.choice(("DATE", "TIMESTAMP"))),
        decimal(rng),
    ]
    values = [*usual, *(random_values(rng) for _ in range(rng.randint(1, 6)))]
    nulls = (0, 5, 50, 100)
    return [
        Column(f"{name}{number}", made, rng.choices(nulls, (6, 3, 3, 1))[0], rng.randrange(1 << 30))
        for number, made in enumerate(values)
    ]


def random_table(rng: random.Random, name: str, rows_max: int) -> Table:
    columns = [key_column(), *random_columns(rng, name)]
    options = rng.choices(("", ", union_by_name = true", ", filename = true"), (18, 1, 1))[0]
    hive = rng.random() < 0.06
    count = rng.choices((1, 2, 3, 5, 8), (3, 3, 3, 2, 1))[0]
    varied = rng.random() < DIFFERENT_TYPES
    lacking = rng.random() < MISSING_COLUMNS
    pools = POOLS if rng.random() < SEVERAL_POOLS else POOLS[:1]
    objects, first = [], 0
    for number in range(count):
        rows = min(rng.choices((0, 1, 2, 7, 60, 300, 2049, 5000), (2, 3, 2, 4, 5, 4, 1, 1))[0], rows_max)
        stored = [(column.name, column.values.type) for column in columns]
        if number and varied:
            stored = [
                (name, other_type(rng, kind) if name != "k" and rng.random() < 0.3 else kind)
                for name, kind in stored
            ]
            if rng.random() < 0.5:
                rng.shuffle(stored)
        if number and lacking:
            del stored[rng.randrange(1, len(stored))]
        folder = f"p={number % 3}/" if hive else ""
        objects.append(
            Object(
                f"{name}/{folder}{number}.parquet",
                first,
                rows,
                tuple(stored),
                rng.choice(("", "", "", stored[-1][0], f"{stored[-1][0]} DESC")),
                rng.choice((2048, 2048, 122880)),
                rng.choice(("zstd", "snappy", "uncompressed", "lz4_raw")),
                rng.random() < 0.4,
                rng.choice(pools),
            )
        )
        first += rows
    return Table(name, tuple(columns), tuple(objects), options)


class Store:
    """Writes tables into pools below a prefix, and as files below a folder for stock DuckDB."""

    def __init__(
        self, con: duckdb.DuckDBPyConnection, pools: dict[str, Pool], name: str, folder: Path
    ) -> None:
        self._con, self._pools, self._name = con, pools, name
        self.folder = folder
        self.prefix = f"rados://{POOL}/{name}"
        self.files = str(folder)
        self.written: set[tuple[str, str]] = set()

    def write(self, table: Table) -> Table:
        """Writes every object. Returns the table with its columns as they are read."""
        for an_object in table.objects:
            self.write_object(table, an_object)
        described = self._con.execute(f"DESCRIBE FROM {table.source(self.files)}").fetchall()
        wild = {column.name: column.values.wild for column in table.columns}
        read = tuple(
            ReadColumn(row[0], row[1], family_of(row[1]), wild.get(row[0], False)) for row in described
        )
        fields = tuple(
            ReadColumn(f"{column.name}.{name}", kind, family_of(kind))
            for column in read
            if column.type == "STRUCT(a INTEGER, b VARCHAR)"
            for name, kind in (("a", "INTEGER"), ("b", "VARCHAR"))
        )
        return replace(table, read=read + fields)

    def write_object(self, table: Table, an_object: Object) -> None:
        file = self.folder / an_object.path
        file.parent.mkdir(parents=True, exist_ok=True)
        self._con.execute(table.copy(an_object, str(file)))
        if an_object.direct:
            self._con.execute(table.copy(an_object, an_object.at(self.prefix)))
            self.written.add((an_object.pool, an_object.path))
        else:
            self.put(an_object.path, file.read_bytes(), an_object.pool)

    def put(self, path: str, data: bytes, pool: str = POOLS[0]) -> None:
        self._pools[pool].write(f"{self._name}/{path}", data)
        self.written.add((pool, path))

    def remove(self) -> None:
        for pool, path in self.written:
            self._pools[pool].remove(f"{self._name}/{path}")
