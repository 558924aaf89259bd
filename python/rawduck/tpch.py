"""TPC-H: data from tpchgen-cli, queries and reference answers from DuckDB's own source release."""

from __future__ import annotations

import csv
import datetime
import math
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

from rawduck import duckdb_source, paths, render
from rawduck.errors import RawduckError

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
QUERY_NUMBERS = tuple(range(1, 23))

# Floating-point answers (averages, ratios) depend on the order in which threads add up.
RELATIVE_TOLERANCE = 1e-9

_DONE = ".complete"
_DBGEN = Path("external/duckdb/extension/tpch/dbgen")


class Reference:
    """Queries and answers of one scale factor, read from an unpacked source release of DuckDB."""

    def __init__(self, source: Path, scale: float) -> None:
        self._dbgen = source / _DBGEN
        self._answers = self._dbgen / "answers" / f"sf{scale:g}"
        if not self._dbgen.is_dir():
            raise RawduckError(
                f"{source}: no DuckDB source release with the TPC-H queries; name one with --duckdb-source, "
                "or run python -m rawduck.duckdb_source build"
            )

    @property
    def has_answers(self) -> bool:
        """Whether DuckDB publishes answers for this scale factor."""
        return self._answers.is_dir()

    def query(self, number: int) -> str:
        return (self._dbgen / "queries" / f"q{number:02}.sql").read_text().strip().rstrip(";")

    def answer(self, number: int) -> list[list[str]]:
        with (self._answers / f"q{number:02}.csv").open(newline="") as file:
            rows = list(csv.reader(file, delimiter="|"))[1:]
        return [row or [""] for row in rows]  # an empty line is a single NULL


def default_source() -> Path:
    """Where DuckDB's source release is kept: below the working directory, which may be a clone of rawduck."""
    return Path(os.environ.get("RAWDUCK_DUCKDB_SOURCE", "build/duckdb-2.0.0"))


def fetched_source(work_dir: Path) -> Path:
    """The same folder; where it is not there, the source release is downloaded into the work directory."""
    source = default_source()
    if (source / _DBGEN).is_dir() or "RAWDUCK_DUCKDB_SOURCE" in os.environ:
        return source
    source = work_dir / source.name
    if not (source / _DBGEN).is_dir():
        paths.make_folder(work_dir, "--work-dir")
        render.print_note(f"Downloading DuckDB's source release to {source}, for TPC-H's queries and answers")
        try:
            duckdb_source.fetch(str(work_dir))
        except duckdb_source.FetchError as error:
            raise RawduckError(str(error)) from None
    return source


def parquet_path(directory: Path, table: str) -> Path:
    return directory / f"{table}.parquet"


def is_generated(directory: Path, scale: float, tables: tuple[str, ...] = TABLES) -> bool:
    """Whether an earlier `generate` with the same arguments finished."""
    done = directory / _DONE
    return done.exists() and done.read_text() == _description(scale, tables)


def generate(directory: Path, scale: float, tables: tuple[str, ...] = TABLES) -> None:
    """Writes one Parquet file per table. Data that is there already stays."""
    if is_generated(directory, scale, tables):
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [generator(), "parquet", "--quiet", "--output-dir", str(directory)]
    command += ["--scale-factor", f"{scale:g}", "--tables", ",".join(tables)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RawduckError(f"tpchgen-cli failed: {result.stderr.strip() or result.returncode}")
    (directory / _DONE).write_text(_description(scale, tables))


def _description(scale: float, tables: tuple[str, ...]) -> str:
    return f"{scale:g} " + " ".join(sorted(tables))


def generator() -> str:
    """The tpchgen-cli of this environment, whether or not the environment is activated."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if not found:
        raise RawduckError(
            "tpchgen-cli is not installed; run: pip install 'rawduck[demo]', or 'rawduck[bench]', which "
            "draws plots as well"
        )
    return found


def load_statement(directory: Path, table: str) -> str:
    path = str(parquet_path(directory, table)).replace("'", "''")
    return f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{path}')"


def difference(rows: list[tuple], answer: list[list[str]]) -> str:
    """What is wrong with a result, or an empty string when it is the reference answer."""
    if len(rows) != len(answer):
        return f"{len(rows)} rows instead of {len(answer)}"
    for number, (row, expected) in enumerate(zip(rows, answer, strict=True), 1):
        if len(row) != len(expected):
            return f"row {number}: {len(row)} columns instead of {len(expected)}"
        for value, text in zip(row, expected, strict=True):
            if not _equal(value, text):
                return f"row {number}: {value!r} instead of {text!r}"
    return ""


def same_rows(rows: list[tuple], others: list[tuple]) -> bool:
    """Whether two results are equal, with the same tolerance for floating-point values."""
    texts = [["" if value is None else str(value) for value in row] for row in others]
    return not difference(rows, texts)


def _equal(value: object, text: str) -> bool:
    """Compares exactly, except for floating-point values."""
    if value is None:
        return text in ("", "NULL")
    if isinstance(value, float):
        return math.isclose(value, float(text), rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    if isinstance(value, (int, Decimal)):
        return Decimal(value) == Decimal(text)
    if isinstance(value, datetime.date):
        return value.isoformat() == text
    return value == text
