"""Makes a query that differs, and its tables, smaller, as long as they differ in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from differential.making.tables import Object, Table
from differential.making.tree import Query, smaller

if TYPE_CHECKING:
    from differential.batch import Batch

SECONDS = 8
ROUNDS = 40


def kind(text: str) -> str:
    """What of a difference must stay the same: an error's class, or that rows differ."""
    return re.match(r"fails: \w+|does not fail|columns|", text).group()


def shrink(batch: Batch, query: Query, mode: str, text: str) -> tuple[Query, list[Table]]:
    """Returns the smaller query and tables. The views show these tables afterwards."""
    limit = time.monotonic() + SECONDS
    wanted = kind(text)

    def same(candidate: Query) -> bool:
        found, _, _ = batch.client.differs(candidate, mode)
        return bool(found) and kind(found) == wanted

    if not same(query):
        return query, batch.tables  # it depends on time
    query = _smallest(query, smaller, same, limit)
    tables = list(batch.tables)
    for number in range(len(tables)):
        tables[number] = _smallest_table(batch, query, tables, number, same, limit + SECONDS)
        batch.show(tables)
    return _smallest(query, smaller, same, limit + 2 * SECONDS), tables


def _smallest_table(
    batch: Batch, query: Query, tables: list[Table], number: int, same: Callable[[Query], bool], limit: float
) -> Table:
    written = set(tables[number].objects)

    def same_with(table: Table) -> bool:
        for an_object in set(table.objects) - written:
            batch.store.write_object(table, an_object)
            written.add(an_object)
        batch.show([*tables[:number], table, *tables[number + 1 :]])
        return same(query)

    return _smallest(tables[number], lambda table: _smaller_tables(table, query.sql()), same_with, limit)


def _smallest(start, choices: Callable[..., Iterator], same: Callable[..., bool], limit: float):
    """Takes the first smaller choice that is the same, again and again."""
    for _ in range(ROUNDS):
        for choice in choices(start):
            if time.monotonic() > limit:
                return start
            if same(choice):
                start = choice
                break
        else:
            return start
    return start


def _smaller_tables(table: Table, text: str) -> Iterator[Table]:
    """Fewer objects, then only the columns in `text`, then fewer rows. What is new is written elsewhere."""
    for number in range(len(table.objects) if len(table.objects) > 1 else 0):
        yield replace(table, objects=(*table.objects[:number], *table.objects[number + 1 :]))
    few = tuple(_used_columns(an_object, text) for an_object in table.objects)
    if few != table.objects:
        yield replace(table, objects=few)
    for number, an_object in enumerate(table.objects):
        half = an_object.rows // 2
        for first, rows in ((an_object.first_row, half), (an_object.first_row + half, an_object.rows - half)):
            if rows < an_object.rows:
                path = re.sub(r"(_\d+_\d+)?(_few)?\.parquet$", rf"_{first}_{rows}\2.parquet", an_object.path)
                less = replace(an_object, first_row=first, rows=rows, path=path)
                yield replace(table, objects=(*table.objects[:number], less, *table.objects[number + 1 :]))


def _used_columns(an_object: Object, text: str) -> Object:
    stored = tuple(column for column in an_object.stored if re.search(rf"\b{column[0]}\b", text))
    if not stored or len(stored) == len(an_object.stored):
        return an_object
    names = {name for name, _ in stored}
    order_by = an_object.order_by if an_object.order_by.split(" ")[0] in names else ""
    path = an_object.path.replace(".parquet", "_few.parquet")
    return replace(an_object, stored=stored, order_by=order_by, path=path)
