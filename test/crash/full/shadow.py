"""What the databases of a volume must hold: a DuckDB in memory that carries out what was acknowledged."""

from __future__ import annotations

import duckdb

#: Of a row: nothing, a text that can be compressed, or one that cannot.
PAYLOAD = """CREATE OR REPLACE MACRO payload(k, v, n) AS CASE WHEN n = 0 THEN ''
    WHEN n > 0 THEN repeat(chr((97 + k % 26)::INTEGER), n)
    ELSE array_to_string(list_transform(range(-n), lambda i: md5(concat(k, ',', v, ',', i))), '') END"""
#: Without making the long ones again, which takes more memory than there is.
WRONG_PAYLOAD = """CASE WHEN n > 0 THEN length(p) <> n OR ltrim(p, chr((97 + k % 26)::INTEGER)) <> ''
    ELSE p <> payload(k, v, n) END"""
NO_PAYLOAD = "CREATE OR REPLACE MACRO payload(k, v, n) AS ''"
COLUMNS = "(k BIGINT, v INTEGER, n INTEGER, h UBIGINT, p VARCHAR)"

Digest = dict[str, list]


def create(table: str) -> str:
    return f"CREATE TABLE {table} {COLUMNS}"


def insert(table: str, first: int, end: int, payload: int) -> str:
    return (
        f"INSERT INTO {table} SELECT k, 0, {payload}, hash(k, 0::INTEGER), payload(k, 0, {payload}) "
        f"FROM range({first}, {end}) r(k)"
    )


def update(table: str, every: int, rest: int) -> str:
    return (
        f"UPDATE {table} SET v = v + 1::INTEGER, h = hash(k, v + 1::INTEGER), "
        f"p = payload(k, v + 1::INTEGER, n) WHERE k % {every} = {rest}"
    )


def delete(table: str, every: int, rest: int) -> str:
    return f"DELETE FROM {table} WHERE k % {every} = {rest}"


def tables_of(database: str) -> str:
    return f"""SELECT table_name FROM duckdb_tables() WHERE NOT internal
        AND '{database}' IN (database_name, schema_name) ORDER BY 1"""


def digest_of(table: str, payload: bool) -> str:
    """The last column counts rows that contradict themselves. The payload takes long to be made again."""
    wrong = f"h <> hash(k, v) OR {WRONG_PAYLOAD}" if payload else "h <> hash(k, v)"
    return f"""SELECT count(*), sum(k)::VARCHAR, sum(v)::VARCHAR, bit_xor(hash(k, v, n))::VARCHAR,
        count(*) FILTER ({wrong}) FROM {table}"""


class Shadow:
    """A schema for each database and each snapshot, with rows that have no payload."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute(NO_PAYLOAD)

    def close(self) -> None:
        self._connection.close()

    def add(self, name: str) -> None:
        self._connection.execute(f"CREATE SCHEMA {name}")

    def copy(self, name: str, of: str) -> None:
        self.add(name)
        for table in self.tables(of):
            self._connection.execute(f"CREATE TABLE {name}.{table} AS FROM {of}.{table}")

    def remove(self, name: str) -> None:
        self._connection.execute(f"DROP SCHEMA {name} CASCADE")

    def apply(self, statements: list[str]) -> None:
        for statement in statements:
            if statement != "CHECKPOINT" and not statement.startswith("CHECKPOINT "):
                self._connection.execute(statement)

    def tables(self, name: str) -> list[str]:
        return [row[0] for row in self._connection.execute(tables_of(name)).fetchall()]

    def digest(self, name: str) -> Digest:
        return {
            table: list(self._connection.execute(digest_of(f"{name}.{table}", False)).fetchone())
            for table in self.tables(name)
        }
