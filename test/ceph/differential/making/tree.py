"""SQL as a tree of pieces, so that a query that differs can be made smaller without parsing it."""

from __future__ import annotations

import copy
from collections.abc import Iterator


class Piece:
    """Text and further pieces, in order. `family`: of the value, for expressions; see column_types.py."""

    def __init__(self, *parts: str | Piece, family: str = "") -> None:
        self.parts = list(parts)
        self.family = family

    def sql(self) -> str:
        return "".join(part if isinstance(part, str) else part.sql() for part in self.parts)

    def pieces(self) -> list[Piece]:
        return [part for part in self.parts if isinstance(part, Piece)]

    def walk(self) -> Iterator[Piece]:
        yield self
        for piece in self.pieces():
            yield from piece.walk()


class Literal(Piece):
    """A constant, which a prepared statement takes as a parameter."""

    def __init__(self, text: str, family: str) -> None:
        super().__init__(text, family=family)


class Several(Piece):
    """Pieces with a separator; nothing at all without pieces. At least `least` of them are kept."""

    def __init__(self, prefix: str, separator: str, items: list[Piece], least: int = 0) -> None:
        super().__init__()
        self.prefix, self.separator, self.items, self.least = prefix, separator, items, least

    def sql(self) -> str:
        return self.prefix + self.separator.join(item.sql() for item in self.items) if self.items else ""

    def pieces(self) -> list[Piece]:
        return self.items


class Item(Piece):
    """An expression of the outer SELECT list. See comparison.py for `rule`."""

    def __init__(self, expression: Piece, name: str, rule: str = "exact") -> None:
        super().__init__(expression, f" AS {name}", family=expression.family)
        self.name, self.rule = name, rule

    #: Python has no value for these, or a less precise one.
    LOSSY = frozenset(("interval", "timestamp", "timestamptz", "nested", "date", "time"))

    @property
    def lossy(self) -> bool:
        return self.family in self.LOSSY


class Query(Piece):
    """A whole query. `items` is among its pieces.

    `order`: what of the result's order is determined: "list" (all of it), "set" (nothing), or "keys" (the
    values of the columns `keys`, and nothing else because LIMIT may choose among ties).
    `wrapped`: all values are cast to VARCHAR around the query.
    """

    def __init__(self, *parts: str | Piece, items: Several, order: str = "set", keys: tuple = ()) -> None:
        super().__init__(*parts)
        self.items, self.order, self.keys = items, order, keys
        self.wrapped = False
        self.prepared = False
        self.features: set[str] = set()

    def sql(self) -> str:
        return self._around(super().sql())

    def _around(self, inner: str) -> str:
        items = self.items.items
        if not self.wrapped and not any(item.lossy for item in items):
            return inner
        columns = ", ".join(f"{item.name}::VARCHAR AS {item.name}" for item in items)
        return f"SELECT {columns} FROM ({inner})"

    @property
    def reordered(self) -> bool:
        """Whether a projection around it leaves the order of rows to DuckDB."""
        return self.wrapped or any(item.lossy for item in self.items.items)

    def prepared_sql(self) -> tuple[str, list[str]]:
        """The query with parameters, and their values."""
        other = copy.deepcopy(self)
        values = []
        for piece in other.walk():
            if isinstance(piece, Literal):
                values.append(piece.parts[0])
                piece.parts = [f"${len(values)}"]
        return other.sql(), values

    def statements(self) -> list[str]:
        """What is executed; the last statement returns the rows."""
        if self.prepared:
            text, values = self.prepared_sql()
            if values:
                return [f"PREPARE q AS {text}", f"EXECUTE q({', '.join(values)})"]
        return [self.sql()]


def smaller(query: Query) -> Iterator[Query]:
    """Queries with one piece less, those with the largest piece removed first."""
    count = sum(1 for _ in query.walk())
    changes = [
        (size, position, choice)
        for position, piece in enumerate(query.walk())
        for size, choice in _choices(piece)
        if size <= count
    ]
    if query.prepared or query.wrapped:
        plain = copy.deepcopy(query)
        plain.prepared = plain.wrapped = False
        yield plain
    for _, position, choice in sorted(changes, reverse=True):
        other = copy.deepcopy(query)
        piece = next(piece for number, piece in enumerate(other.walk()) if number == position)
        _apply(piece, choice)
        yield other


def _choices(piece: Piece) -> Iterator[tuple[int, int]]:
    """What can be removed from a piece: the number of pieces that this saves, and what to remove."""
    if isinstance(piece, Several):
        if len(piece.items) > piece.least:
            yield from ((_size(item), number) for number, item in enumerate(piece.items))
    elif piece.family and not isinstance(piece, Item | Literal):
        for number, inner in enumerate(_inner(piece)):
            yield _size(piece) - _size(inner), number


def _apply(piece: Piece, choice: int) -> None:
    if isinstance(piece, Several):
        del piece.items[choice]
    else:
        piece.parts = [_inner(piece)[choice]]


def _inner(piece: Piece) -> list[Piece]:
    """Expressions inside of a larger one with the same family of values."""
    if len(piece.parts) == 1:
        return (
            [other for other in piece.parts[0].pieces() if other.family == piece.family]
            if piece.pieces()
            else []
        )
    return [other for other in piece.pieces() if other.family == piece.family]


def _size(piece: Piece) -> int:
    return sum(1 for _ in piece.walk())
