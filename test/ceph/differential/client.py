"""Runs queries in any mode."""

from __future__ import annotations

import re
from itertools import product

import duckdb

from differential.judging.comparison import Outcome, difference
from differential.making.settings import COLLATION, change
from differential.making.tree import Query

#: The tables of a batch, and the largest number of rows of their objects.
TABLES = {"t": 5000, "u": 300, "v": 60}


class Client:
    """A connection on which queries are run in any mode."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.settings: dict[str, str] = {}
        self.threads = 0
        self.invalid = False  # after an internal error DuckDB refuses every further query

    def configure(self, settings: dict[str, str], threads: int) -> None:
        for statement in change(self.settings, settings):
            self.con.execute(statement)
        if threads != self.threads:
            self.con.execute(f"SET threads = {threads}")
        self.settings, self.threads = settings, threads

    def errors_of_column(self, query: Query, column: str) -> list[str]:
        """What reading all of a column fails with, in those tables of the query that have it."""
        self.con.execute("SET rados_offload = 'never'")
        errors = []
        for name in self._tables(query):
            try:
                self.con.execute(f'SELECT max(hash("{column}")) FROM memory.main.{name}').fetchall()
            except duckdb.BinderException:
                continue  # no such column
            except duckdb.Error as error:
                errors.append(f"{type(error).__name__}: {error}")
        return errors

    def _tables(self, query: Query) -> set[str]:
        return set(re.findall(r"\w+", query.sql())).intersection(TABLES)

    def copy_tables(self, query: Query) -> None:
        """Makes tables of DuckDB's own for the mode "copied". Other tables may not be readable."""
        self.con.execute("SET rados_offload = 'never'")
        self.con.execute("CREATE SCHEMA IF NOT EXISTS copied")
        for name in self._tables(query):
            self.con.execute(f"CREATE OR REPLACE TABLE memory.copied.{name} AS FROM memory.main.{name}")

    def fails_in_another_order(self, query: Query, text: str) -> bool:
        """Whether the query on the copies of its tables fails with this text in some order of their rows."""
        for name in self._tables(query):
            copied = f"memory.copied.{name}"
            columns = self.con.execute(f"SELECT column_name FROM (DESCRIBE {copied})").fetchall()
            for (column,), order in product(columns, ("ASC", "DESC")):
                self.con.execute(
                    f'CREATE OR REPLACE TABLE {copied} AS FROM memory.main.{name} ORDER BY "{column}" {order}'
                )
                if text in self.run(query, "copied").error:
                    return True
        return False

    def run(self, query: Query, mode: str) -> Outcome:
        """`mode`: of rados_offload, "stock" for the files, or "copied"."""
        others = ("stock", "copied")
        self.con.execute(f"USE memory.{mode if mode in others else 'main'}")
        self.con.execute(f"SET rados_offload = '{'never' if mode in others else mode}'")
        try:
            *before, last = query.statements()
            for statement in before:
                self.con.execute(statement)
            result = self.con.execute(last)
            names = tuple(column[0] for column in result.description)
            types = tuple(str(column[1]) for column in result.description)
            return Outcome(names, types, result.fetchall())
        except (duckdb.Error, OverflowError, ValueError) as error:
            self.invalid |= isinstance(error, duckdb.InternalException | duckdb.FatalException)
            return Outcome(error=f"{type(error).__name__}: {error}")

    def differs(self, query: Query, mode: str, read: Outcome | None = None) -> tuple[str, Outcome, Outcome]:
        """The difference between a mode and reading, and both results."""
        read = read or self.run(query, "never")
        other = self.run(query, mode)
        return difference(query, read, other, COLLATION in self.settings), read, other
