"""The types of columns: how their values are made, and the family of expressions that they belong to."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: By the type that read_parquet reports, up to the first parenthesis.
FAMILIES = {
    "BOOLEAN": "bool",
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), "int"
    ),
    "HUGEINT": "int",
    "UHUGEINT": "int",
    "FLOAT": "float",
    "DOUBLE": "float",
    "DECIMAL": "decimal",
    "VARCHAR": "text",
    "BLOB": "blob",
    "DATE": "date",
    "TIME": "time",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_S": "timestamp",
    "TIMESTAMP_MS": "timestamp",
    "TIMESTAMP_NS": "timestamp",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "INTERVAL": "interval",
    "UUID": "uuid",
}


def family_of(type_name: str) -> str:
    """`nested`: everything that no expression uses: lists, structures, maps, JSON and others."""
    if type_name.endswith("]") or type_name.startswith(("STRUCT", "MAP")):
        return "nested"
    return FAMILIES.get(type_name.split("(")[0], "nested")


@dataclass(frozen=True)
class Values:
    """How a column's values are made. `sql`: an expression in which {h} is a random UBIGINT and {i} the row.

    `wild`: sums of them depend on their order (very large or special floating-point numbers).
    """

    type: str
    sql: str
    wild: bool = False

    def expression(self, salt: int) -> str:
        return self.sql.replace("{h}", f"hash(i * 2654435761 + {salt})").replace("{i}", "i")


def one_of(type_name: str, *values: str, wild: bool = False) -> Values:
    listed = ", ".join(values)
    return Values(type_name, f"([{listed}]::{type_name}[])[1 + ({{h}} % {len(values)})::BIGINT]", wild)


def quoted(*values: str) -> list[str]:
    return ["'" + value.replace("'", "''") + "'" for value in values]


BITS = {
    "TINYINT": 7,
    "SMALLINT": 15,
    "INTEGER": 31,
    "BIGINT": 63,
    "UTINYINT": 8,
    "USMALLINT": 16,
    "UINTEGER": 32,
    "UBIGINT": 64,
}


def integer(rng: random.Random, type_name: str) -> Values:
    bits = BITS[type_name]
    low = 0 if type_name.startswith("U") else -(1 << bits)
    high = (1 << bits) - 1
    offset = 0 if low == 0 else rng.choice((0, 3, 50))
    count = rng.choice((2, 3, 10, 100))
    return rng.choice(
        (
            one_of(type_name, *map(str, (low, high, 0, 1, low + 1, high - 1))),
            Values(type_name, f"({{h}} % {count})::{type_name} - {offset}::{type_name}"),
            Values(type_name, f"({{h}} % {min(count, 27)} + 100)::{type_name}"),
            Values(type_name, f"({{h}} % {1 << (bits - 1)})::{type_name}"),
            Values(type_name, f"({{i}} % {min(high, 1 << 20)})::{type_name}"),
        )
    )


def floating(rng: random.Random, type_name: str) -> Values:
    largest = "1e308" if type_name == "DOUBLE" else "3e38"
    special = ("'nan'", "'inf'", "'-inf'", "0.0", "'-0.0'", largest, "-" + largest, "1e-310", "1e-45", "1.5")
    return rng.choice(
        (
            # Their sums are exact in any order.
            Values(type_name, f"(({{h}} % 2001)::BIGINT - 1000)::{type_name} * 0.25::{type_name}"),
            Values(type_name, f"({{h}} % 1000000)::{type_name} / 1000::{type_name}"),
            one_of(type_name, "'-0.0'", "0.0", "1.0"),
            one_of(type_name, *special, wild=True),
        )
    )


def decimal(rng: random.Random) -> Values:
    width, scale = rng.choice(((4, 1), (9, 2), (15, 2), (18, 3), (18, 18), (38, 0), (38, 10), (38, 37)))
    type_name = f"DECIMAL({width},{scale})"
    unit = f"1e-{scale}::DECIMAL({width},{scale})" if scale < width else f"1e-{scale}::{type_name}"
    small = Values(type_name, f"((({{h}} % 199)::INTEGER - 99) * {unit})::{type_name}")
    cents = Values(type_name, f"((({{h}} % 9999)::INTEGER) * {unit})::{type_name}")
    if width < 38:
        largest = "9" * (width - scale) + ("." + "9" * scale if scale else "")
        return rng.choice(
            (small, cents, one_of(type_name, largest, "-" + largest, "0", "0.1" if scale else "1"))
        )
    # The sum of two does not fit, and the sum of all does, mostly.
    large = "6" + "0" * (width - scale - 1)
    sign = f"CASE WHEN {{i}} % 4 < 2 THEN {large} ELSE -{large} END"
    return rng.choice((small, cents, Values(type_name, f"({sign})::{type_name}")))


def text(rng: random.Random) -> Values:
    pools = (
        ("1", "2"),
        ("A", "B"),
        ("2023", "2024"),
        ("A", "a", "B", "b", ""),
        ("", " ", "a", "ab", "abc"),
        ("AIR", "MAIL", "RAIL", "SHIP", "TRUCK", "REG AIR", "FOB"),
        ("ä", "é", "e", "ü", "u", "ß", "日本", "🦆", "Ä"),
        ("1", "-7", "x", "12.5", "", "1e3", " 8"),
        ("2024-01-01", "1999-12-31", "nonsense", "2024-02-30"),
        ("exactly12byt", "exactly12byx", "exactly12bytes", "a longer text than that"),
        ("100%", "a_b", "a%b", "axb", "\\", "a.b"),
    )
    pool = one_of("VARCHAR", *quoted(*rng.choice(pools)))
    return rng.choice(
        (
            pool,
            pool,
            pool,
            pool,
            Values(
                "VARCHAR", "([chr(0), 'a' || chr(0), 'a' || chr(0) || 'b', 'a', ''])[1 + ({h} % 5)::BIGINT]"
            ),
            Values("VARCHAR", "({h} % 100)::VARCHAR"),
            Values("VARCHAR", "(10 + {h} % 25)::VARCHAR || '-' || (100 + {h} // 25 % 899)::VARCHAR"),
            Values("VARCHAR", "(2020 + {h} % 4)::VARCHAR"),
            Values("VARCHAR", "md5(({h} % 5000)::VARCHAR)"),
            Values("VARCHAR", "repeat(chr((97 + {h} % 26)::INTEGER), ({h} // 26 % 300)::INTEGER)"),
        )
    )


def blob(rng: random.Random) -> Values:
    return rng.choice(
        (
            one_of("BLOB", *quoted("", "\\x00", "\\x00\\x01", "abc", "\\xFF\\xFE", "a", "b")),
            one_of("BLOB", *quoted("1", "2", "a", "B")),
            Values("BLOB", "md5(({h} % 300)::VARCHAR)::BLOB"),
        )
    )


def temporal(rng: random.Random, type_name: str) -> Values:
    if type_name == "DATE":
        special = ("infinity", "-infinity", "1970-01-01", "9999-12-31", "0044-03-15 (BC)", "2024-02-29")
        return rng.choice(
            (
                Values("DATE", f"DATE '1992-01-01' + ({{h}} % {rng.choice((3, 400, 2500))})::INTEGER"),
                Values("DATE", "DATE '2023-12-01' + ({h} % 60)::INTEGER"),
                one_of("DATE", *quoted(*special)),
            )
        )
    seconds = rng.choice((10, 100000, 200000000))
    fraction = rng.choice(("0", "{h} // 7 % 1000000"))
    micros = f"({{h}} % {seconds})::BIGINT * 1000000 + ({fraction})::BIGINT"
    made = f"make_timestamp(1700000000000000 - 86400000000 * 300 + {micros})"
    if type_name == "TIMESTAMP_NS":
        made = f"make_timestamp_ns((1700000000000000 + {micros}) * 1000 + ({{h}} % 1000)::BIGINT)"
    special = ["1970-01-01", "1969-12-31 23:59:59.5", "2024-03-31 02:30:00", "2024-10-27 02:30:00"]
    if type_name != "TIMESTAMP_NS":
        special += ["infinity", "-infinity"]
    return rng.choice(
        (Values(type_name, f"({made})::{type_name}"), Values(type_name, f"({made})::{type_name}"),
         one_of(type_name, *quoted(*special)))
    )  # fmt: skip


NESTED = (
    Values("INTEGER[]", "[x::INTEGER for x in range(({h} % 4)::BIGINT)]"),
    Values("VARCHAR[]", "['a', NULL, ({h} % 5)::VARCHAR]"),
    Values("STRUCT(a INTEGER, b VARCHAR)", "{'a': ({h} % 10)::INTEGER, 'b': ({h} % 3)::VARCHAR}"),
    Values("MAP(VARCHAR, INTEGER)", "MAP {'a': ({h} % 10)::INTEGER, 'b': 1}"),
    Values("STRUCT(l INTEGER[])[]", "[{'l': [({h} % 10)::INTEGER]}]"),
)

OTHERS = (
    Values("UUID", "md5(({h} % 400)::VARCHAR)::UUID"),
    Values("ENUM('A', 'B', 'C')", "(['A', 'B', 'C'])[1 + ({h} % 3)::BIGINT]::ENUM('A', 'B', 'C')"),
    Values("TIME", "make_time(({h} % 24)::BIGINT, ({h} // 24 % 60)::BIGINT, ({h} // 1440 % 60)::DOUBLE)"),
    one_of("TIME", *quoted("00:00:00", "24:00:00", "23:59:59.999999", "12:00:00")),
    one_of("TIMETZ", *quoted("00:00:00+00", "12:00:00+02", "10:00:00-11:30")),
    one_of(
        "INTERVAL", *quoted("1 month", "30 days", "1 day", "1 year 3 hours", "0 seconds", "1 microsecond")
    ),
    one_of("HUGEINT", "170141183460469231731687303715884105727", "0", "-1", "9007199254740993"),
    Values("HUGEINT", "({h} % 1000)::HUGEINT"),
    Values("UHUGEINT", "({h} % 1000)::UHUGEINT"),
    one_of("JSON", *quoted("1", '{"a": 2}', "[]", '"x"', "null")),
    Values("BIT", "({h} % 9)::INTEGER::BIT"),
)


def random_values(rng: random.Random) -> Values:
    """Values of a type at random; the types that are pushed are more frequent."""
    kind = rng.choices(
        ("integer", "floating", "decimal", "text", "date", "timestamp", "boolean", "blob", "other", "nested"),
        (24, 11, 11, 24, 10, 12, 4, 4, 6, 4),
    )[0]
    if kind == "integer":
        return integer(rng, rng.choice(list(BITS)))
    if kind == "floating":
        return floating(rng, rng.choice(("FLOAT", "DOUBLE", "DOUBLE")))
    if kind == "decimal":
        return decimal(rng)
    if kind == "text":
        return text(rng)
    if kind == "date":
        return temporal(rng, "DATE")
    if kind == "timestamp":
        return temporal(
            rng,
            rng.choice(
                ("TIMESTAMP", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
            ),
        )
    if kind == "boolean":
        return Values("BOOLEAN", "({h} % 3 > 0)")
    if kind == "blob":
        return blob(rng)
    return rng.choice(NESTED if kind == "nested" else OTHERS)


#: What a column may be stored as in another object of the same list.
OTHER_TYPES = {
    "TINYINT": ("SMALLINT", "BIGINT", "DOUBLE", "UTINYINT"),
    "SMALLINT": ("TINYINT", "INTEGER", "BIGINT", "VARCHAR"),
    "INTEGER": ("SMALLINT", "BIGINT", "DOUBLE", "VARCHAR", "DECIMAL(12,2)", "UINTEGER"),
    "BIGINT": ("INTEGER", "SMALLINT", "DOUBLE", "HUGEINT", "UBIGINT", "VARCHAR"),
    "UINTEGER": ("INTEGER", "UBIGINT"),
    "UBIGINT": ("BIGINT", "UINTEGER", "DOUBLE"),
    "FLOAT": ("DOUBLE", "INTEGER"),
    "DOUBLE": ("FLOAT", "INTEGER", "DECIMAL(18,3)", "VARCHAR"),
    "DATE": ("VARCHAR", "TIMESTAMP", "TIMESTAMPTZ"),
    "TIMESTAMP": ("TIMESTAMPTZ", "DATE", "TIMESTAMP_NS", "TIMESTAMP_S", "VARCHAR"),
    "TIMESTAMPTZ": ("TIMESTAMP", "DATE", "VARCHAR"),
    "VARCHAR": ("BLOB", "DATE", "INTEGER", "BIGINT", "ENUM('A', 'B', 'C')"),
    "BLOB": ("VARCHAR",),
    "BOOLEAN": ("INTEGER", "VARCHAR"),
}
DECIMAL_TYPES = ("DECIMAL(9,1)", "DECIMAL(18,4)", "DECIMAL(38,2)", "DOUBLE", "BIGINT")


def other_type(rng: random.Random, type_name: str) -> str:
    choices = DECIMAL_TYPES if type_name.startswith("DECIMAL") else OTHER_TYPES.get(type_name, ())
    return rng.choice(choices) if choices else type_name
