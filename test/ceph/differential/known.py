"""Cases that once differed, made small, and their neighbours; and the seeds of batches that once differed.

A seed makes the same queries only as long as the generator is the same, a case for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Batches, with the numbers of their queries.
SEEDS: tuple[tuple[str, int], ...] = (
    *(("s.2", 135), ("s.2", 140), ("s.4", 41), ("s.9", 160)),
    ("1795412218.0", 65),
    *(("20261126.57", 178), ("20261126.62", 199), ("20261126.86", 83)),
    *(("20261201.226", 118), ("20261125.175", 94), ("20261125.175", 160)),
)


@dataclass(frozen=True)
class Case:
    """`objects`: the rows of each object of the table t. `query`: returns values that Python has.

    `fails`: when it is read, so it must fail when it is pushed, too.
    """

    name: str
    query: str
    objects: tuple[str, ...]
    settings: dict[str, str] = field(default_factory=dict)
    pool: str = "data"
    fails: bool = False


NUMBERS = (
    "SELECT i AS k, i % 7 AS a FROM range(200) r(i)",
    "SELECT i AS k, i % 5 AS a FROM range(200, 300) r(i)",
)
DATES = ("SELECT DATE '1992-01-01' + i::INTEGER AS d, i AS k FROM range(3000) r(i)",)
PHONES = ("SELECT (10 + i % 25) || '-' || i AS phone, i AS k FROM range(500) r(i)",)
GREEK = ("SELECT 'a' AS s, 1 AS k", "SELECT 'A' AS s, 2 AS k")

WIDER = ("SELECT 1::UBIGINT AS v, 'A' AS s", "SELECT 1.8446744073709552e19::DOUBLE AS v, 'B' AS s")

CASES = (
    Case(
        "labels 1 and 2",
        "SELECT CASE WHEN k > 110 THEN '1' ELSE '2' END AS g, count(*) FROM t GROUP BY g",
        NUMBERS,
    ),
    Case(
        "labels of years",
        "SELECT CASE WHEN k > 9 THEN '2023' ELSE '2024' END AS g FROM t GROUP BY g",
        NUMBERS,
    ),
    Case(
        "labels A and B",
        "SELECT CASE WHEN k > 110 THEN 'A' ELSE 'B' END AS g, sum(a) FROM t GROUP BY g",
        NUMBERS,
    ),
    Case(
        "labels that differ in length",
        "SELECT CASE WHEN k > 9 THEN '1' ELSE '2024' END AS g FROM t GROUP BY g",
        NUMBERS,
    ),
    Case("first characters", "SELECT substring(phone, 1, 1) AS g, count(*) FROM t GROUP BY g", PHONES),
    Case("first two characters", "SELECT substring(phone, 1, 2) AS g, max(k) FROM t GROUP BY g", PHONES),
    Case("years", "SELECT year(d) AS y, count(*) FROM t GROUP BY y", DATES),
    Case(
        "large integers",
        "SELECT v, w FROM t GROUP BY v, w",
        ("SELECT 3181545160043055282::BIGINT AS v, 1.5::DECIMAL(38,10) AS w",),
    ),
    Case(
        "decimal sums beyond 38 digits",
        "SELECT sum(v) FROM t",
        ("SELECT 6e37::DECIMAL(38,0) AS v FROM range(2)", "SELECT -6e37::DECIMAL(38,0) AS v FROM range(2)"),
    ),
    Case(
        "division by zero",
        "SELECT k // 0 AS c FROM t WHERE k // 0 IS NULL AND k < 3",
        NUMBERS,
        {"error_on_division_by_zero": "false"},
    ),
    Case(
        "remainder of zero",
        "SELECT sum(k % 0), count(k % 0) FROM t",
        NUMBERS,
        {"error_on_division_by_zero": "false"},
    ),
    Case(
        "floating-point division by zero",
        "SELECT k::DOUBLE / 0 AS c FROM t WHERE k > 290",
        NUMBERS,
        {"ieee_floating_point_ops": "false", "error_on_division_by_zero": "false"},
    ),
    Case(
        "integer division", "SELECT k / 7 AS c FROM t WHERE k / 7 = 2", NUMBERS, {"integer_division": "true"}
    ),
    Case("collation of a filter", "SELECT k FROM t WHERE s = 'a'", GREEK, {"default_collation": "'nocase'"}),
    Case("no collation", "SELECT s, min(k) FROM t GROUP BY s", GREEK, {"default_collation": "'binary'"}),
    Case(
        "collation of groups", "SELECT count(*) FROM t GROUP BY s", GREEK, {"default_collation": "'nocase'"}
    ),
    Case(
        "time zones of objects",
        "SELECT v::VARCHAR AS c FROM t",
        ("SELECT TIMESTAMP '2024-01-01 12:00:00' AS v", "SELECT TIMESTAMPTZ '2024-01-01 12:00:00+00' AS v"),
        {"TimeZone": "'Asia/Kolkata'"},
    ),
    Case(
        "time zones of casts",
        "SELECT v::DATE::VARCHAR AS c, count(*) FROM t GROUP BY c",
        ("SELECT TIMESTAMPTZ '2024-01-01 22:00:00+00' AS v",),
        {"TimeZone": "'Asia/Kolkata'"},
    ),
    Case(
        "calendar",
        "SELECT v::VARCHAR AS c FROM t",
        ("SELECT TIMESTAMP '2024-01-01 12:00:00' AS v", "SELECT TIMESTAMPTZ '2024-01-01 12:00:00+00' AS v"),
        {"Calendar": "'japanese'"},
    ),
    Case(
        "binary strings",
        "SELECT max(b) AS c FROM t WHERE b > 'b'",
        ("SELECT encode('é') AS b",),
        {"binary_as_string": "true"},
    ),
    Case(
        "regular expressions",
        "SELECT count(*) FROM t WHERE phone ~ '1'",
        PHONES,
        {"regex_match_operator_semantics": "'full'"},
    ),
    Case(
        "constants of timestamps",
        "SELECT count(*) FROM t WHERE d > TIMESTAMP '1995-06-15 12:00:00'",
        ("SELECT TIMESTAMP '1992-01-01' + to_days(i::INTEGER) AS d FROM range(3000) r(i)",),
    ),
    Case(
        "floating-point division by zero in a filter",
        "SELECT k FROM t WHERE 1.5::FLOAT < (k / a)",
        NUMBERS,
        {"ieee_floating_point_ops": "false"},
        fails=True,
    ),
    Case(
        "disabled casts of time zones",
        "SELECT v::VARCHAR AS c FROM t",
        ("SELECT TIMESTAMP '2024-01-01 12:00:00' AS v", "SELECT TIMESTAMPTZ '2024-01-01 12:00:00+00' AS v"),
        {"disable_timestamptz_casts": "true"},
        fails=True,
    ),
    Case("a stored value that does not fit", "SELECT s FROM t WHERE v IS NOT NULL", WIDER),
    Case(
        "a stored value that does not fit, in the first rows",
        "SELECT k, v FROM t ORDER BY k LIMIT 5",
        (
            "SELECT i AS k, 0.5::DECIMAL(18,18) AS v FROM range(100) r(i)",
            "SELECT 100 + i AS k, 1::DECIMAL(9,1) AS v FROM range(100) r(i)",
        ),
    ),
    Case(
        "an impossible CASE in an object that the client reads",
        "SELECT k FROM t WHERE CASE WHEN false THEN NULL WHEN d = DATE '1992-01-01' THEN '1' END < chr(0)",
        DATES,
        pool="coded",
    ),
    Case(
        "an upper filter that fails for what a lower one removes",
        "SELECT k FROM t WHERE (CAST(ts AS TIME) = TIME '12:00:00') "
        "AND ((s <> s OR d >= DATE '1994-03-01')) LIMIT 5",
        (
            "SELECT NULL::DATE AS d, i AS k, 'infinity'::TIMESTAMP_MS AS ts, 'a' AS s FROM range(0) r(i)",
            "SELECT NULL::VARCHAR AS d, i AS k, 'infinity'::TIMESTAMP_MS AS ts, 'a' AS s FROM range(1) r(i)",
        ),
    ),
    Case(
        "a value that is computed for the first rows only",
        "SELECT k AS c0, CAST(v AS DECIMAL(18,2)) AS d0 FROM t ORDER BY c0 LIMIT 1",
        ("SELECT i AS k, CASE WHEN i < 5 THEN 1 ELSE 9223372036854775806 END AS v FROM range(9) r(i)",),
    ),
    Case(
        "the same, which is not pushed",
        "SELECT k AS c0, CAST(v AS DECIMAL(18,2)) AS d0 FROM t ORDER BY c0 LIMIT 1",
        ("SELECT i AS k, CASE WHEN i < 5 THEN 1 ELSE 9223372036854775806 END AS v FROM range(9) r(i)",),
        {"default_collation": "'noaccent'"},
    ),
    # Statistics let reading skip the rows, two filters above a scan are pushed as one.
    Case(
        "an error in rows that a list of constants excludes",
        "SELECT count(*) FROM t WHERE d IN (SELECT d FROM t WHERE k > 500 LIMIT 1000) AND d IN "
        "(DATE '1995-06-15', DATE '1994-03-01', DATE '1993-01-01', DATE '1993-01-02') AND k < k // a",
        tuple(
            f"SELECT i AS k, 0 AS a, DATE '2023-12-01' + i::INTEGER % 60 AS d FROM range({n}, {n + 100}) r(i)"
            for n in (0, 100)
        ),
    ),
    # The other side is empty: the scan is asked for rows all the same. They do not come to the upper filter.
    Case(
        "an upper filter that fails for rows that nobody needs",
        "SELECT k FROM t WHERE CAST(s AS DATE) > DATE '2019-01-01' AND (k = 50 OR a = -3) "
        "INTERSECT SELECT k FROM t WHERE s SIMILAR TO '(?i)nothing'",
        tuple(
            f"SELECT i AS k, i % 7 AS a, CASE WHEN i % 100 = 50 THEN 'air' ELSE '2020-01-01' END AS s "
            f"FROM range({n}, {n + 100}) r(i)"
            for n in (0, 100)
        ),
    ),
    # The second scan runs only when the first one has its rows, and both need calls.
    Case(
        "two scans and one call at a time",
        "SELECT count(*), min(b.s) FROM (FROM t WHERE s LIKE '%a%b%' AND k % 7 <> 3) a "
        "JOIN (FROM t WHERE s LIKE '%c%d%' LIMIT 40) b ON a.k = b.k",
        tuple(
            f"SELECT i AS k, md5(i::VARCHAR) AS s FROM range({n}0000, {n + 5}0000) r(i)"
            for n in (0, 5, 10, 15)
        ),
        {"rados_offload_in_flight": "1"},
    ),
)
