"""Run by an older DuckDB: writes a database with a table for each codec and pattern of NULLs, checkpointed.

Arguments: the file, and the storage version ("" for what that DuckDB writes by itself)."""

from __future__ import annotations

import sys

import duckdb

ROWS = 4_000
CODECS = [
    *("auto", "uncompressed", "rle", "bitpacking", "dictionary", "fsst", "chimp", "patas", "alp", "alprd"),
    *("zstd", "roaring", "dict_fsst"),
]
TYPES = {
    "flag": "(i % 3 = 0)",
    "small": "((i % 200) - 100)::TINYINT",
    "number": "(i * 1000003)",
    "wide": "(i::HUGEINT * 10000000000000000000)",
    "price": "(i / 100)::DECIMAL(9, 2)",
    "single": "(i / 8)::FLOAT",
    "rounded": "round(i / 7, 2)",
    "real": "sin(i) * exp(i % 300)",
    "day": "(DATE '1900-01-01' + (i % 50000)::INTEGER)",
    "same": "7",
    "word": "('value ' || (i % 100))",
    "text": "repeat(md5(i::VARCHAR), 3)",
    "unlike": "(md5(i::VARCHAR) || i)",
    "blob": "encode('value ' || (i % 1000))",
}
NULLS = {"none": "false", "few": "hash(i) % 50 = 0", "runs": "(i // 1500) % 2 = 0"}


def main() -> None:
    path, storage_version = sys.argv[1:]
    connection = duckdb.connect()
    options = f" (STORAGE_VERSION '{storage_version}')" if storage_version else ""
    connection.execute(f"ATTACH '{path}' AS d{options}")
    connection.execute("USE d")
    for codec in CODECS:
        try:
            connection.execute(f"PRAGMA force_compression = '{codec}'")
        except duckdb.Error:  # this version does not have it, or not any more
            continue
        for nulls, is_null in (NULLS if codec == "auto" else {"few": NULLS["few"]}).items():
            columns = [
                f"CASE WHEN NOT ({is_null}) THEN {value} END AS {name}" for name, value in TYPES.items()
            ]
            query = f"SELECT {', '.join(columns)} FROM range({ROWS}) r(i)"
            connection.execute(f"CREATE TABLE {codec}_{nulls} AS {query}")
            connection.execute("CHECKPOINT d")
    connection.execute("USE memory")
    connection.execute("DETACH d")


main()
