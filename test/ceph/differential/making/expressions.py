"""Random expressions over the columns of a table."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from differential.making.constants import CONSTANTS
from differential.making.features import AGGREGATE_FILTER, AGGREGATES, GROUP_TEMPLATES, TEMPLATES
from differential.making.tables import ReadColumn
from differential.making.tree import Item, Literal, Piece

_HOLE = re.compile(r"\{(\w+)(!?)\}")

COMPARISONS = ("=", "=", "<>", "<", "<=", ">", ">=")
INT_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "UBIGINT", "HUGEINT")
DEPTH = 2


class Expressions:
    """`features`: of everything that was made so far."""

    def __init__(self, rng: random.Random, columns: Sequence[ReadColumn], qualifier: str = "") -> None:
        self._rng, self._columns, self._qualifier = rng, columns, qualifier
        self.features: set[str] = set()

    def column(self, family: str = "") -> Piece | None:
        """A column of a family, or any; None where the table has none."""
        known = [column for column in self._columns if not family or column.family == family]
        return self.column_piece(self._rng.choice(known)) if known else None

    def column_piece(self, column: ReadColumn) -> Piece:
        return Piece(f"{self._qualifier}{column.name}", family=column.family)

    def constant(self, family: str) -> Piece:
        return Literal(self._rng.choice(CONSTANTS[family]), family)

    def expression(self, family: str, depth: int = DEPTH) -> Piece:
        """A column more often than not, so that what is pushed does not always fail to be."""
        templates = TEMPLATES[family]
        if depth <= 0 or not templates or self._rng.random() < 0.55:
            column = self.column(family)
            if column is not None:
                return column
        if depth <= -1 or not templates:
            return self.constant(family)
        return self._from_template(templates, family, depth)

    def condition(self, depth: int = DEPTH) -> Piece:
        return self._from_template(TEMPLATES["bool"], "bool", depth)

    def conditions(self) -> list[Piece]:
        """Conjuncts of a WHERE clause."""
        return [self.condition() for _ in range(self._rng.choices((0, 1, 2, 3), (3, 5, 3, 1))[0])]

    def group(self) -> Piece:
        """The key of a group."""
        if self._rng.random() < 0.4:
            column = self.column(self._rng.choice(("text", "int", "bool", "date", "decimal", "float")))
            if column is not None:
                self.features.add("column group")
                return column
        _, feature, family, text = self._rng.choices(GROUP_TEMPLATES, [row[0] for row in GROUP_TEMPLATES])[0]
        self.features.add(feature)
        return self._fill(text, family, 1)

    def output(self, name: str) -> Item:
        """A column of the result."""
        if self._rng.random() < 0.5:
            expression = self.column()
        else:
            expression = self.expression(
                self._rng.choice(("int", "text", "float", "decimal", "date", "bool", "timestamp"))
            )
        return Item(expression, name)

    def aggregate(self, name: str) -> Item:
        _, feature, text, family, rule = self._rng.choices(AGGREGATES, [row[0] for row in AGGREGATES])[0]
        self.features.add(feature)
        argument = self._fill(text, "", 1)
        parts = [argument]
        if self._rng.random() < AGGREGATE_FILTER:
            self.features.add("aggregate filter")
            parts += [" FILTER (WHERE ", self.condition(1), ")"]
        return Item(Piece(*parts, family=family), name, self._rule(rule, argument))

    def _rule(self, rule: str, argument: Piece) -> str:
        """Sums of plain columns are accurate in any order; those of expressions may cancel each other out."""
        if rule != "sum":
            return rule
        inner = argument.pieces()[0]
        plain = not inner.pieces() and not isinstance(inner, Literal)
        wild = {f"{self._qualifier}{column.name}" for column in self._columns if column.wild}
        return "sum" if plain and inner.family in ("float", "int") and inner.sql() not in wild else "wild"

    def _from_template(self, templates: Sequence, family: str, depth: int) -> Piece:
        _, feature, text = self._rng.choices(templates, [row[0] for row in templates])[0]
        self.features.add(feature)
        return self._fill(text, family, depth - 1)

    def _fill(self, text: str, family: str, depth: int) -> Piece:
        parts: list[str | Piece] = []
        position = 0
        for hole in _HOLE.finditer(text):
            parts.append(text[position : hole.start()])
            parts.append(self._hole(hole.group(1), hole.group(2) == "!", depth))
            position = hole.end()
        parts.append(text[position:])
        return Piece(*parts, family=family)

    def _hole(self, name: str, constant: bool, depth: int) -> Piece:
        if name == "cmp":
            return Piece(self._rng.choice(COMPARISONS))
        if name == "int_type":
            return Piece(self._rng.choice(INT_TYPES))
        if name == "any":
            return self.column()
        if constant or name == "small":
            return self.constant(name)
        return self.expression(name, depth)
