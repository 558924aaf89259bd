"""Errors that may differ: a query may fail in one way of executing it and succeed in another.

An error about a value (a failing cast, an overflow, a division by zero) is raised only when the row is
evaluated. These rules are as narrow as they can be:

1. Reading fails and the pushed query succeeds. Each conjunct of a WHERE clause, and each condition of a CASE
   or OR, may keep another expression from being evaluated, and LIMIT and joins may end a scan before the row;
   INTERSECT and EXCEPT are joins. Of a scan whose rows cannot be needed, an empty side of a join being known,
   reading may evaluate some rows all the same. To count values, which is half of an average, DuckDB does not
   compute them where they cannot be NULL.
2. The pushed query fails in the client, not on an object, and reading succeeds. This may differ only if
   reading fails with the same error as soon as DuckDB chooses another plan or reads tables of its own, which
   is tried: an empty side of a join, for example, keeps the other side from being evaluated, and so does an
   argument that is a constant NULL in Parquet, which needs no other condition in the query. An error in a
   pushed expression is always a difference.
3. The first rows of a LIMIT are pushed as whole rows, and an object that the client reads in place of an OSD
   lacks a column, or has a value in it that does not fit. Reading fetches such columns of the first rows only
   (late materialization). This may differ only if reading fails with the same error without that.
4. An object that the client reads in place of an OSD has a value that does not fit into the column's type, in
   a query that may end a scan early: a join with an empty side, for example, ends it with the first rows of
   whichever object comes first. This may differ only if reading that whole column fails with the same error.
5. A sum or average of 128-bit numbers overflows on the way to a total that fits, or does not, as the order of
   the rows has it, which several objects or threads leave open. This may differ only if reading tables of
   DuckDB's own overflows in another order of their rows.
6. Stock DuckDB refuses a cast of a stored column that a setting forbids, and reading succeeds. That is found
   when the file is opened, and an object that the filters exclude is not opened.
7. Stock DuckDB refuses a file that lacks a column, and reading succeeds, because the statistics of the object
   exclude it, so that it is not opened. This may differ only if reading fails with the same error where no
   filter comes to the scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import duckdb

from differential.judging.comparison import Outcome
from differential.making.tree import Query

if TYPE_CHECKING:
    from differential.client import Client

ABOUT_A_VALUE = ("ConversionException", "OutOfRangeException", "InvalidInputException")
SETS = (" INTERSECT ", " EXCEPT ")
MAY_SKIP_ROWS = (" AND ", " OR ", "CASE ", "LIMIT", " JOIN ", " IN (", "EXISTS (", "count(", "avg(", *SETS)
MAY_END_A_SCAN = ("LIMIT", " JOIN ", " IN (", "EXISTS (")
OVERFLOW = "Overflow in HUGEINT addition"
LATE_MATERIALIZATION = "late_materialization"
#: Optimizers without which other plans are chosen.
OTHER_PLANS = (
    "join_order,build_side_probe_side",
    "filter_pushdown",
    "statistics_propagation,empty_result_pullup",
    LATE_MATERIALIZATION,
    "filter_pushdown,join_order,build_side_probe_side,statistics_propagation,empty_result_pullup,top_n,limit_pushdown",
)


LACKS_A_COLUMN = "schema mismatch in glob: column"
FORBIDDEN_CAST = "BinderException: Binder Error: Casting from TIMESTAMP WITH TIME ZONE to "


def may_differ(client: Client, query: Query, mode: str, read: Outcome, other: Outcome) -> bool:
    text = query.sql()
    if (
        mode == "stock"
        and " WHERE " in text
        and read.rows is not None
        and other.error.startswith(FORBIDDEN_CAST)
    ):
        return True
    if mode == "stock" and read.rows is not None and LACKS_A_COLUMN in other.error:
        return _fails_without(client, query, other, ("filter_pushdown",))
    if read.rows is None:
        may_skip = any(word in text for word in MAY_SKIP_ROWS)
        return may_skip and other.rows is not None and read.error.startswith(ABOUT_A_VALUE)
    if other.rows is not None or not other.error.startswith(ABOUT_A_VALUE):
        return False
    if "rados://" in other.error.split("\n")[0]:
        if any(word in text for word in MAY_END_A_SCAN) and _column_fails(client, query, other):
            return True
        takes_whole_rows = mode in ("always", "shared") and "LIMIT" in text
        return takes_whole_rows and _fails_without(client, query, other, (LATE_MATERIALIZATION,))
    return _fails_in_another_plan(client, query, other)


def _fails_in_another_plan(client: Client, query: Query, other: Outcome) -> bool:
    try:
        client.copy_tables(query)
    except duckdb.Error:
        return False  # a table cannot be read
    if OVERFLOW in other.error:
        return client.fails_in_another_order(query, OVERFLOW)
    fails_on_copies = _first_line(client.run(query, "copied").error) == _first_line(other.error)
    return fails_on_copies or _fails_without(client, query, other, OTHER_PLANS)


def _column_fails(client: Client, query: Query, other: Outcome) -> bool:
    """Whether reading the whole column that the error names, of a table of the query, fails with the same
    error, of the same object."""
    column = re.search(r'failed to cast column "([^"]+)"', other.error)
    if not column:
        return False
    errors = client.errors_of_column(query, column.group(1))
    return any(error.split(": Casti")[0] == other.error.split(": Casti")[0] for error in errors)


def _fails_without(client: Client, query: Query, other: Outcome, plans: Iterable[str]) -> bool:
    """Whether reading fails with the same error without one of these lists of optimizers."""
    before = client.settings
    try:
        for optimizers in plans:
            client.configure({**before, "disabled_optimizers": f"'{optimizers}'"}, client.threads)
            if _first_line(client.run(query, "never").error) == _first_line(other.error):
                return True
    finally:
        client.configure(before, client.threads)
    return False


def _first_line(error: str) -> str:
    """Without the value, since another plan may come to another row first."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|-?\d[\d.e+]*", "…", error.split("\n")[0])
