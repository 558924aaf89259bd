"""The same as host.cpp, in DuckDB's Python module, which does export its C++ symbols: python host.py FILE."""

import sys
from pathlib import Path

import duckdb

connection = duckdb.connect(config={"allow_unsigned_extensions": True})
for statement in Path(sys.argv[1]).read_text().splitlines():
    try:
        rows = connection.execute(statement).fetchall()
        print(" ".join(str(value) for row in rows for value in row) or "ok")
    except duckdb.Error as error:
        print("error:", str(error).replace("\n", " "))
