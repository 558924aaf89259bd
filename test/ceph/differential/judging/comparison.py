"""Whether two results of a query are the same.

Each column of a query has a rule:

exact           the same value; 0.0 and -0.0 differ
representative  any of several equal values may stand for a group or be the smallest: 0.0 and -0.0, and under
                a collation any spelling
sum             a sum or average of floating-point numbers, whose last digits depend on the order
wild            the same, of numbers that cancel each other out or overflow: only whether it is NULL
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from differential.making.tree import Query

RELATIVE = 1e-9


@dataclass
class Outcome:
    """The result of a query, or its error."""

    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rows: list[tuple] | None = None
    error: str = ""  # begins with its class

    def __str__(self) -> str:
        if self.rows is None:
            return self.error[:300]
        text = ", ".join(map(repr, self.rows[:6]))
        return f"{len(self.rows)} rows: {text[:400]}"


def difference(query: Query, read: Outcome, other: Outcome, collation: bool = False) -> str:
    """Empty when the results are the same. `collation`: whether a default collation is set."""
    if read.rows is None or other.rows is None:
        if read.rows is None and other.rows is None:
            return ""
        return f"fails: {other.error}" if other.rows is None else f"does not fail: {read.error}"
    if (read.names, read.types) != (other.names, other.types):
        return f"columns {other.names} {other.types} instead of {read.names} {read.types}"
    if repr(read.rows) == repr(other.rows):
        return ""
    order = "set" if query.order == "list" and query.reordered else query.order
    return _rows_differ(query, read, other, order, collation)


def _rows_differ(query: Query, read: Outcome, other: Outcome, order: str, collation: bool) -> str:
    if len(read.rows) != len(other.rows):
        return f"{len(other.rows)} rows instead of {len(read.rows)}"
    items = {item.name: item for item in query.items.items}
    places = range(len(read.names))
    if order == "keys":
        places = [place for place in places if read.names[place] in query.keys]
    rules = [items[read.names[place]].rule if read.names[place] in items else "exact" for place in places]
    one = [_normal(row, places, rules, collation) for row in read.rows]
    two = [_normal(row, places, rules, collation) for row in other.rows]
    if order == "set" or (order == "keys" and query.reordered):
        one.sort(key=repr)
        two.sort(key=repr)
    for left, right in zip(one, two, strict=True):
        if left[0] != right[0] or not all(map(_close, left[1], right[1])):
            return _describe(one, two, order)
    return ""


def _normal(row: tuple, places: Sequence[int], rules: Sequence[str], collation: bool) -> tuple[tuple, tuple]:
    """The values that must be the same, and those that may differ a little."""
    exact, close = [], []
    for place, rule in zip(places, rules, strict=True):
        value = row[place]
        if rule == "sum" and value is not None:
            close.append(float(value))
        elif rule == "wild":
            exact.append(value is None)
        else:
            exact.append(_text(value, rule, collation))
    return tuple(exact), tuple(close)


def _text(value: object, rule: str, collation: bool) -> str:
    if rule == "representative":
        if value in ("0.0", "-0.0") or (value == 0 and isinstance(value, float)):
            return "0.0"
        if collation and isinstance(value, str):
            return ""  # only the number of groups and the other columns count
    return repr(value)


def _close(one: float, two: float) -> bool:
    if math.isnan(one) or math.isnan(two):
        return math.isnan(one) and math.isnan(two)
    if math.isinf(one) or math.isinf(two):
        return one == two
    return abs(one - two) <= RELATIVE * max(abs(one), abs(two))


def _describe(one: list, two: list, order: str) -> str:
    """The first rows that are in one result only."""
    left, right = Counter(map(repr, one)), Counter(map(repr, two))
    missing, more = list((left - right).elements()), list((right - left).elements())
    if not missing and not more:
        return f"the same rows in another order ({order}): {two[:3]} instead of {one[:3]}"[:400]
    return f"{len(missing)} rows differ: {more[:2]} instead of {missing[:2]}"[:400]
