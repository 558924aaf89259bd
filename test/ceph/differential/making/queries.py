"""Random queries of every shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from differential.making.expressions import Expressions
from differential.making.features import PREPARED, SHAPES, WRAPPED
from differential.making.tables import Table
from differential.making.tree import Item, Piece, Query, Several

DIRECTIONS = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC NULLS LAST")


@dataclass
class Maker:
    """Makes queries over some tables, of which the first is the most frequent."""

    rng: random.Random
    tables: Sequence[Table]

    def query(self) -> Query:
        shape = self.rng.choices(list(SHAPES), list(SHAPES.values()))[0]
        query = SHAPE_MAKERS[shape](self)
        query.features.add(shape)
        query.prepared = self.rng.random() < PREPARED
        query.wrapped = self.rng.random() < WRAPPED
        query.features |= {"prepared"} if query.prepared else set()
        return query

    def table(self) -> Table:
        return self.tables[0] if self.rng.random() < 0.7 else self.rng.choice(self.tables)

    def some(self, make: Callable[[str], Item], least: int, most: int, prefix: str = "c") -> list[Item]:
        return [make(f"{prefix}{number}") for number in range(self.rng.randint(least, most))]

    def limit(self) -> Several:
        parts: list[Piece] = [Piece(f"LIMIT {self.rng.choice((0, 1, 2, 5, 10, 100, 3000))}")]
        if self.rng.random() < 0.4:
            parts.append(Piece(f"OFFSET {self.rng.choice((0, 1, 3, 50, 2500))}"))
        return Several(" ", " ", parts)

    def direction(self) -> str:
        return self.rng.choice(DIRECTIONS)


def where(conditions: list[Piece]) -> Several:
    return Several(" WHERE ", " AND ", [Piece("(", condition, ")") for condition in conditions])


def order_by(keys: list[Piece]) -> Several:
    """Not made smaller: with fewer keys less of the order is determined."""
    return Several(" ORDER BY ", ", ", keys, least=len(keys))


def columns(items: list[Item]) -> Several:
    return Several("", ", ", items, least=1)


def finish(query: Query, *makers: Expressions) -> Query:
    for maker in makers:
        query.features |= maker.features
    return query


def rows(maker: Maker) -> Query:
    table = maker.table()
    make = Expressions(maker.rng, table.read)
    items = columns(maker.some(make.output, 1, 5))
    text = ("SELECT ", items, f" FROM {table.name}", where(make.conditions()))
    # Files keep the order of their rows.
    return finish(Query(*text, items=items, order="list"), make)


def limit(maker: Maker) -> Query:
    query = rows(maker)
    query.parts.append(maker.limit())
    return query


def sorted_by_columns(maker: Maker, with_limit: bool) -> Query:
    table = maker.table()
    make = Expressions(maker.rng, table.read)
    total = maker.rng.random() < 0.5
    keys = [
        make.column() if maker.rng.random() < 0.7 else make.output("x").pieces()[0]
        for _ in range(maker.rng.randint(1, 3))
    ]
    keys += [Piece("k", family="int")] if total else []
    # 0.0 and -0.0 are the same in an order.
    items = [Item(key, f"c{number}", "representative") for number, key in enumerate(keys)]
    others = maker.some(make.output, 0, 3, "d")
    orders = Several(
        " ORDER BY ", ", ", [Piece(f"c{number}", maker.direction()) for number in range(len(items))]
    )
    select = columns([*items, *others])
    names = tuple(item.name for item in items)
    order = "list" if total else "keys"
    text = ["SELECT ", select, f" FROM {table.name}", where(make.conditions()), orders]
    if with_limit:
        text.append(maker.limit())
    return finish(Query(*text, items=select, order=order, keys=names), make)


def top_n(maker: Maker) -> Query:
    return sorted_by_columns(maker, True)


def order(maker: Maker) -> Query:
    return sorted_by_columns(maker, False)


def aggregate(maker: Maker) -> Query:
    table = maker.table()
    make = Expressions(maker.rng, table.read)
    items = columns(maker.some(make.aggregate, 1, 5))
    text = ("SELECT ", items, f" FROM {table.name}", where(make.conditions()))
    return finish(Query(*text, items=items), make)


def group_by(maker: Maker) -> Query:
    table = maker.table()
    make = Expressions(maker.rng, table.read)
    keys = [
        Item(make.group(), f"g{number}", "representative")
        for number in range(maker.rng.choice((1, 1, 1, 2, 3)))
    ]
    measures = maker.some(make.aggregate, 0, 4)
    items = columns([*keys, *measures])
    groups = Several(" GROUP BY ", ", ", [Piece(key.name) for key in keys])
    text: list[str | Piece] = ["SELECT ", items, f" FROM {table.name}", where(make.conditions()), groups]
    if maker.rng.random() < 0.2:
        make.features.add("having")
        text.append(Several(" HAVING ", "", [having(maker, make)]))
    ordered = maker.rng.random() < 0.3
    if ordered:
        orders = [Piece(key.name, maker.direction()) for key in keys]
        text.append(order_by(orders))
        if maker.rng.random() < 0.6:
            make.features.add("top groups")
            text.append(maker.limit())
    names = tuple(key.name for key in keys)
    return finish(Query(*text, items=items, order="list" if ordered else "set", keys=names), make)


def having(maker: Maker, make: Expressions) -> Piece:
    if maker.rng.random() < 0.5:
        return Piece(f"count(*) > {maker.rng.choice((0, 1, 3, 20))}")
    return Piece("min(", make.expression("int", 1), ") < ", make.constant("int"))


def grouping_sets(maker: Maker) -> Query:
    table = maker.table()
    make = Expressions(maker.rng, table.read)
    keys = [Item(make.group(), f"g{number}", "representative") for number in range(2)]
    items = columns([*keys, *maker.some(make.aggregate, 1, 2)])
    kind = maker.rng.choice(("ROLLUP (g0, g1)", "CUBE (g0, g1)", "GROUPING SETS ((g0), (g1), ())"))
    text = ("SELECT ", items, f" FROM {table.name}", where(make.conditions()), f" GROUP BY {kind}")
    return finish(Query(*text, items=items), make)


def distinct(maker: Maker) -> Query:
    table = maker.table()
    make = Expressions(maker.rng, table.read)

    def key(name: str) -> Item:
        return Item(make.group(), name, "representative")

    items = columns(maker.some(key, 1, 3))
    text = ("SELECT DISTINCT ", items, f" FROM {table.name}", where(make.conditions()))
    return finish(Query(*text, items=items), make)


def common_columns(left: Table, right: Table) -> list[tuple[str, str]]:
    """Pairs of columns of a type that can be joined."""
    families = ("int", "text", "date", "decimal")
    return [
        (one.name, other.name)
        for one in left.read
        for other in right.read
        if one.family == other.family and one.family in families
    ]


def join(maker: Maker) -> Query:
    left, right = maker.tables[0], maker.rng.choice(maker.tables[1:])
    if maker.rng.random() < 0.3:
        left, right = right, left
    make = Expressions(maker.rng, left.read, "a.")
    other = Expressions(maker.rng, right.read, "b.")
    pair = maker.rng.choice(common_columns(left, right))
    kind = maker.rng.choice(("JOIN", "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
    # Few rows on one side, so that the result is not large and its keys become a filter of the other side.
    few = f"(FROM {right.name} WHERE k % 23 = {maker.rng.randrange(3)} LIMIT 40)"
    if maker.rng.random() < 0.6:
        items = columns(maker.some(make.aggregate, 1, 3) + maker.some(other.aggregate, 0, 1, "d"))
    else:
        items = columns(maker.some(make.output, 1, 3) + maker.some(other.output, 0, 2, "d"))
    on = f"a.{pair[0]} = b.{pair[1]}"
    conditions = make.conditions() + ([other.condition()] if maker.rng.random() < 0.5 else [])
    for item in items.items:
        qualify_key(item, "a.k" if item.name.startswith("c") else "b.k")
    text = ("SELECT ", items, f" FROM {left.name} a {kind} {few} b ON {on}", where(conditions))
    return finish(Query(*text, items=items), make, other)


def qualify_key(piece: Piece, name: str) -> None:
    """For aggregates that are ordered by k."""
    for inner in piece.walk():
        inner.parts = [
            part.replace("ORDER BY k)", f"ORDER BY {name})").replace(", k)", f", {name})")
            if isinstance(part, str)
            else part
            for part in inner.parts
        ]


def semi_join(maker: Maker) -> Query:
    left, right = maker.tables[0], maker.rng.choice(maker.tables[1:])
    make = Expressions(maker.rng, left.read)
    inner = Expressions(maker.rng, right.read)
    one, other = maker.rng.choice(common_columns(left, right))
    items = columns(maker.some(make.output if maker.rng.random() < 0.5 else make.aggregate, 1, 3))
    condition = inner.condition()
    subquery = Piece(
        f"SELECT {other} FROM {right.name} WHERE ", condition, f" LIMIT {maker.rng.choice((5, 50, 1000))}"
    )
    no_limit = Piece(f"SELECT {other} FROM {right.name} WHERE ", condition)
    choice = maker.rng.randrange(4)
    if choice == 0:
        test = Piece(f"{one} IN (", subquery, ")")
    elif choice == 1:
        test = Piece(f"{one} NOT IN (", no_limit, f" AND {other} IS NOT NULL)")
    elif choice == 2:
        test = Piece(f"EXISTS (SELECT 1 FROM {right.name} b WHERE b.{other} = {left.name}.{one})")
    else:
        test = Piece(
            f"NOT EXISTS (SELECT 1 FROM {right.name} b WHERE b.{other} = {left.name}.{one} AND b.k % 2 = 0)"
        )
    text = ("SELECT ", items, f" FROM {left.name}", where([test, *make.conditions()]))
    return finish(Query(*text, items=items), make, inner)


def scalar_subquery(maker: Maker) -> Query:
    left, right = maker.tables[0], maker.rng.choice(maker.tables)
    make = Expressions(maker.rng, left.read)
    inner = Expressions(maker.rng, right.read)
    items = columns(maker.some(make.output if maker.rng.random() < 0.5 else make.aggregate, 1, 3))
    function = maker.rng.choice(("min", "max", "sum", "count", "avg"))
    argument, conditions = inner.expression("int", 1), where(inner.conditions())
    subquery = Piece(f"(SELECT {function}(", argument, f") FROM {right.name}", conditions, ")")
    test = Piece(make.expression("int", 1), maker.rng.choice((" < ", " >= ", " = ", " <> ")), subquery)
    text = ("SELECT ", items, f" FROM {left.name}", where([test, *make.conditions()]))
    return finish(Query(*text, items=items), make, inner)


def with_query(maker: Maker) -> Query:
    """A query over the result of another, perhaps used twice."""
    table = maker.table()
    make = Expressions(maker.rng, table.read)
    group = Item(make.group(), "g", "representative")
    value = Item(make.expression("int", 1), "v")
    inner = Piece(
        "SELECT ", Several("", ", ", [group, value]), f" FROM {table.name}", where(make.conditions())
    )
    kind = maker.rng.choice(("", "", " MATERIALIZED", " NOT MATERIALIZED"))
    key = Item(Piece("x.g", family=group.family), "c0", "representative")
    measure = Piece(maker.rng.choice(("sum(x.v)", "count(*)", "min(x.v)")), family="int")
    items = columns([key, Item(measure, "c1")])
    twice = maker.rng.random() < 0.4
    source = "q x JOIN (SELECT DISTINCT g FROM q) y USING (g)" if twice else "q x"
    if twice and maker.rng.random() < 0.5:
        source = "q x WHERE x.v > (SELECT avg(v) FROM q)"
    elif twice:
        source = "q x WHERE x.g IN (SELECT max(g) FROM q)"
    text = (f"WITH q AS{kind} (", inner, ") SELECT ", items, f" FROM {source} GROUP BY x.g")
    return finish(Query(*text, items=items), make)


def set_operation(maker: Maker) -> Query:
    left, right = maker.table(), maker.table()
    make, other = Expressions(maker.rng, left.read), Expressions(maker.rng, right.read)
    families = [maker.rng.choice(("int", "text", "date", "bool")) for _ in range(maker.rng.randint(1, 3))]
    kind = maker.rng.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "UNION ALL"))
    items = Several("", ", ", [Item(make.expression(family, 1), f"c{number}", "representative")
                               for number, family in enumerate(families)], least=99)  # fmt: skip
    others = Several("", ", ", [Item(other.expression(family, 1), f"c{number}")
                                for number, family in enumerate(families)], least=99)  # fmt: skip
    text = ("SELECT ", items, f" FROM {left.name}", where(make.conditions()), f" {kind} SELECT ",
            others, f" FROM {right.name}", where(other.conditions()))  # fmt: skip
    return finish(Query(*text, items=items), make, other)


def window(maker: Maker) -> Query:
    table = maker.table()
    make = Expressions(maker.rng, table.read)
    over = Piece(" OVER (PARTITION BY ", make.group(), " ORDER BY k)")
    function = maker.rng.choice((("row_number()", None), ("rank()", None), ("sum(", "int"), ("lag(", "text"),
                                 ("max(", "int"), ("count(", "text")))  # fmt: skip
    if function[1] is None:
        call = Piece(function[0], over, family="int")
    else:
        family = "text" if function[0] == "lag(" else "int"
        call = Piece(function[0], make.expression(function[1], 1), ")", over, family=family)
    items = columns([Item(Piece("k", family="int"), "k"), Item(call, "w"), *maker.some(make.output, 0, 2)])
    text = ["SELECT ", items, f" FROM {table.name}", where(make.conditions())]
    if maker.rng.random() < 0.3:
        text.append(" QUALIFY w = 1" if function[1] is None else " QUALIFY w IS NOT NULL")
    return finish(Query(*text, items=items), make)


SHAPE_MAKERS: dict[str, Callable[[Maker], Query]] = {
    "rows": rows,
    "limit": limit,
    "top-n": top_n,
    "order": order,
    "aggregate": aggregate,
    "group by": group_by,
    "grouping sets": grouping_sets,
    "distinct": distinct,
    "join": join,
    "semi join": semi_join,
    "scalar subquery": scalar_subquery,
    "with": with_query,
    "set operation": set_operation,
    "window": window,
}
