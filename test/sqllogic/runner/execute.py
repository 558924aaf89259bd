"""Runs one sqllogictest with stock DuckDB's Python client: on ordinary files, or on a rawduck volume.

In both cases a loaded database is attached to an instance that started in memory, because a path that needs
an extension cannot be opened before it is loaded; so both see the same catalog.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import re
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import compare
import duckdb
import script

LISTS = {
    "<compression>": "none uncompressed rle bitpacking dictionary fsst alp alprd roaring dict_fsst",
    "<integral>": "tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint",
    "<signed>": "tinyint smallint integer bigint hugeint",
    "<unsigned>": "utinyint usmallint uinteger ubigint uhugeint",
    "<numeric>": "tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint float "
    "double",
    "<alltypes>": "bool tinyint smallint integer bigint hugeint utinyint usmallint uinteger ubigint uhugeint "
    "float double varchar",
    "<all_types_columns>": "bool tinyint smallint int bigint hugeint uhugeint utinyint usmallint uint "
    "ubigint bignum date time timestamp timestamp_s timestamp_ms timestamp_ns time_tz timestamp_tz float "
    "double dec_4_1 dec_9_4 dec_18_6 dec38_10 uuid interval varchar blob bit small_enum medium_enum "
    "large_enum int_array double_array date_array timestamp_array timestamptz_array varchar_array "
    "nested_int_array struct struct_of_arrays array_of_structs map union fixed_int_array "
    "fixed_varchar_array fixed_nested_int_array fixed_nested_varchar_array fixed_struct_array "
    "struct_of_fixed_array fixed_array_of_int_list list_of_fixed_int_array",
}
#: Requirements that this runner meets, and those it can never meet.
MET = {
    "notwindows",
    "64bit",
    "skip_reload",
    "noforcestorage",
    "no_alternative_verify",
    "longdouble",
    "no_latest_storage",
}
MET |= {
    "no_vector_verification",
    "allow_unsigned_extensions",
    "no_extension_autoloading",
    "vacuum_rebuild_indexes",
}
MET |= {
    "noalternativeverify",
    "nothreadsan",
    "no_block_verification",
    "no_extension_autoloading",
    "strinline",
}
_VECTOR_SIZE, _BLOCK_SIZE = 2048, 262144
_UNITS = {"second": 1, "millisecond": 1e-3, "microsecond": 1e-6, "nanosecond": 1e-9, "minute": 60}
#: The variable of a concurrent loop that names the connection of the thread.
_THREAD = "*connection*"


class Skip(Exception):
    """The test cannot run here; the reason."""


class Failure(Exception):
    """The test ran and found something else than it expects."""


@dataclass
class _Call:
    """A command with everything replaced that is to be replaced."""

    words: list[str]
    sql: str
    expected: list[str]
    connection: str


def _holds(condition: str, names: dict[str, str]) -> bool:
    """Of a skipif or onlyif: `variable=value`, with the comparisons there are, or the name of an engine."""
    found = re.fullmatch(r"([^<>=]+)(<>|<=|>=|=|<|>)(.*)", condition)
    if not found:
        return condition == "duckdb"
    name, operator, wanted = found.groups()
    value = names.get(name, "")
    if operator in ("=", "<>"):
        return (value == wanted) == (operator == "=")
    left, right = int(value), int(wanted)
    return {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}[operator]


def _bind(variables: list[str], value: str) -> dict[str, str]:
    """`foreach a,b 1,2` binds two variables; with one variable a comma means nothing."""
    values = value.split(",") if len(variables) > 1 else [value]
    return dict(zip(variables, values, strict=True))


class Execution:
    """One run of one test."""

    def __init__(self, folder: str, source: Path, scratch: Path, extension: str = "") -> None:
        #: What {TEST_DIR} stands for: a folder, or nvme://<volume>/<folder>.
        self.folder = folder
        self.extension = extension
        self._source, self._scratch = source, scratch
        self._variables = {
            "TEST_DIR": folder,
            "TEMP_DIR": folder,
            "TEMP_DIR_ABSOLUTE": folder,
            "DATA_DIR": str(source / "data"),
            "WORKING_DIR": str(source),
        }
        self._database, self._alias, self._options = "", "", ""
        self._connections: dict[str, duckdb.DuckDBPyConnection] = {}
        self._labels: dict[str, str] = {}
        self._skipping = False
        self._lock = threading.Lock()
        self._connect()

    def run(self, path: Path) -> None:
        """Throws Skip or Failure, whose text begins with the line."""
        commands = script.read(path)
        if self.extension and re.search(r"file:/*{TE(ST|MP)_DIR", path.read_text(errors="replace")):
            raise Skip("a file: URL, which a volume is not")
        with contextlib.closing(self):
            self._run_all(commands, {})

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _run_all(self, commands: list[script.Command], names: dict[str, str]) -> None:
        for command in commands:
            if self._applies(command, names) and not self._run(command, names):
                raise StopIteration

    def _applies(self, command: script.Command, names: dict[str, str]) -> bool:
        for what, condition in command.conditions:
            holds = _holds(condition, names)
            if holds == (what == "skipif"):
                return False
        return not self._skipping or command.words[:2] == ["mode", "unskip"]

    def _run(self, command: script.Command, names: dict[str, str]) -> bool:
        """False when the test ends here."""
        words = [self._replace(word, names) for word in command.words]
        if command.kind in script.LOOPS:
            self._loop(command, words, names)
            return True
        if command.kind == "halt":
            return False
        try:
            handler = getattr(self, "_" + command.kind.replace("-", "_"), None)
            if handler is None:
                raise Skip(f"this runner has no {command.kind}")
            handler(_Call(words, *self._texts(command, names), names.get(_THREAD, "")))
        except (Skip, Failure) as problem:
            if str(problem).startswith("line "):
                raise
            raise type(problem)(f"line {command.line}: {problem}") from None
        return True

    def _texts(self, command: script.Command, names: dict[str, str]) -> tuple[str, list[str]]:
        return self._replace(command.sql, names), [self._replace(line, names) for line in command.expected]

    def _replace(self, text: str, names: dict[str, str]) -> str:
        text = text.replace("__TEST_DIR__", self.folder).replace("__WORKING_DIRECTORY__", str(self._source))
        for name, value in itertools.chain(names.items(), self._variables.items()):
            text = text.replace("{" + name + "}", value).replace("${" + name + "}", value)
        return text

    # -- loops

    def _loop(self, command: script.Command, words: list[str], names: dict[str, str]) -> None:
        if command.kind in ("loop", "concurrentloop"):
            values = [str(number) for number in range(int(words[2]), int(words[3]))]
        else:
            values = [value for word in words[2:] for value in LISTS.get(word, word).split()]
            removed = {value[1:] for value in values if value.startswith("!")}
            values = [value for value in values if value.lstrip("!") not in removed]
        variables = words[1].split(",")
        rounds = [{**names, **_bind(variables, value)} for value in values]
        if not command.kind.startswith("concurrent"):
            for scope in rounds:
                self._run_all(command.body, scope)
            return
        problems: list[BaseException] = []

        def work(scope: dict[str, str]) -> None:
            try:
                self._run_all(command.body, scope)
            except BaseException as problem:  # re-raised below, in the main thread
                problems.append(problem)

        threads = []
        for number, scope in enumerate(rounds):
            scope[_THREAD] = f"concurrent {number}"
            threads.append(threading.Thread(target=work, args=(scope,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for scope in rounds:
            connection = self._connections.pop(scope[_THREAD], None)
            if connection:
                connection.close()
        if problems:
            raise problems[0]

    # -- connections

    def _connect(self) -> None:
        connection = duckdb.connect(config={"allow_unsigned_extensions": True})
        self._connections[""] = connection
        connection.execute("SET enable_progress_bar = false")
        if self.extension:
            connection.execute(f"LOAD '{self.extension}'")
        connection.execute(f"SET temp_directory = '{self.folder}/duckdb_temp'")
        if self._database:
            self._alias = '"' + self._database.rsplit("/", 1)[1].split(".")[0] + '"'
            options = f" ({self._options})" if self._options else ""
            connection.execute(f"ATTACH '{self._database}' AS {self._alias}{options}")
            connection.execute(f"USE {self._alias}")
            connection.execute("DETACH memory")  # a test expects to see its own database only

    def _connection(self, name: str) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if name not in self._connections:
                self._connections[name] = self._connections[""].cursor()
                if self._database:
                    self._connections[name].execute(f"USE {self._alias}")
            return self._connections[name]

    # -- commands

    def _statement(self, call: _Call) -> None:
        wanted = call.words[1]
        connection = self._connection(call.words[2] if len(call.words) > 2 else call.connection)
        try:
            connection.execute(call.sql).fetchall()
            message = ""
        except duckdb.Error as error:
            message = str(error)
        if wanted == "ok" and message:
            raise _unwanted(message)
        if wanted == "error" and not message:
            raise Failure(f"this was to fail: {call.sql[:200]}")
        if message and call.expected and not compare.error_matches(message, call.expected):
            raise Failure(f"failed otherwise than expected: {message[:300]}")

    def _query(self, call: _Call) -> None:
        words = call.words[2:]
        how = "nosort"
        if words and words[0] in ("nosort", "rowsort", "sort", "valuesort"):
            how = words.pop(0)
        elif words:
            call.connection = words.pop(0)
        label = words[0] if words else ""
        try:
            rows, types = _fetch(self._connection(call.connection), call.sql)
        except duckdb.Error as error:
            raise _unwanted(str(error)) from None
        rows = compare.sort(rows, how)
        if label:
            found = compare.digest(rows)
            if self._labels.setdefault(label, found) != found:
                raise Failure(f"the result differs from that of an earlier query with label {label}")
        if call.expected or not label:
            self._expect(rows, types, call.expected)

    def _expect(self, rows: list[tuple[str, ...]], types: list[str], expected: list[str]) -> None:
        if expected and expected[0].startswith("<FILE>:"):
            raise Skip("expected results in a file")
        problem = compare.difference(rows, types, expected)
        if problem:
            raise Failure(problem)

    def _require(self, call: _Call) -> None:
        name = call.words[1].lower()
        if name in MET:
            return
        if name in ("vector_size", "block_size"):
            enough = (
                int(call.words[2]) <= _VECTOR_SIZE
                if name == "vector_size"
                else int(call.words[2]) == _BLOCK_SIZE
            )
            if not enough:
                raise Skip(f"needs {name} {call.words[2]}")
            return
        query = "SELECT count(*) FROM duckdb_extensions() WHERE extension_name = ? AND loaded"
        if self._connections[""].execute(query, [name]).fetchone()[0] == 0:
            raise Skip(f"needs {name}")

    def _require_env(self, call: _Call) -> None:
        raise Skip(f"needs the environment variable {call.words[1]}")

    def _test_env(self, call: _Call) -> None:
        self._variables[call.words[1]] = " ".join(call.words[2:])

    def _load(self, call: _Call) -> None:
        path = call.words[1]
        mode = call.words[2] if len(call.words) > 2 else ""
        self.close()
        self._database = path if "/" in path else f"{self.folder}/{path}"
        options = ["READ_ONLY"] if mode == "readonly" else []
        options += [f"STORAGE_VERSION '{call.words[3]}'"] if len(call.words) > 3 else []
        self._options = ", ".join(options)
        if mode != "readonly":
            self._remove(self._database)
            self._remove(self._database + ".wal")
        self._connect()

    def _restart(self, call: _Call) -> None:
        self.close()
        self._connect()

    def _reconnect(self, call: _Call) -> None:
        self._connections[""], old = self._connections[""].cursor(), self._connections[""]
        old.close()
        if self._database:
            self._connections[""].execute(f"USE {self._alias}")

    def _mode(self, call: _Call) -> None:
        self._skipping = call.words[1] == "skip" or (self._skipping and call.words[1] != "unskip")

    def _set(self, call: _Call) -> None:
        if call.words[1] != "seed":
            raise Skip(f"this runner has no set {call.words[1]}")
        self._connections[""].execute(f"SELECT setseed({call.words[2]})")

    def _reset(self, call: _Call) -> None:
        self._labels.pop(call.words[2], None)

    def _sleep(self, call: _Call) -> None:
        time.sleep(float(call.words[1]) * _UNITS[call.words[2].rstrip("s")])

    def _unzip(self, call: _Call) -> None:
        """The file is unpacked beside the test, and from there goes where it shall be."""
        packed = call.words[1]
        named = len(call.words) > 2 and call.words[2] != "NULL"
        target = call.words[2] if named else f"{self.folder}/{Path(packed).stem}"
        plain = self._scratch / Path(target).name
        try:
            with gzip.open(self._source / packed) as source, plain.open("wb") as file:
                shutil.copyfileobj(source, file)
        except FileNotFoundError as error:
            raise Skip(f"{error.filename} is not there") from None
        if self.extension:
            self._connections[""].execute(
                "SELECT * FROM nvme_copy(?, ?, overwrite := true)", [str(plain), target]
            ).fetchall()
        elif str(plain) != target:
            shutil.move(plain, target)

    def _ignored(self, call: _Call) -> None:
        """Has no meaning here."""

    _tags = _hash_threshold = _template = _ignored

    def _remove(self, path: str) -> None:
        if not self.extension or not path.startswith("nvme://"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
            connection.execute(f"LOAD '{self.extension}'")
            if connection.execute("SELECT count(*) FROM glob(?)", [path]).fetchone()[0]:
                connection.execute("SELECT * FROM nvme_remove(?)", [path]).fetchall()


def _unwanted(message: str) -> Exception:
    """What a test needs and the machine lacks is no failure."""
    missing = re.search(
        r"extension \"?(\w+)\"? (?:could not be loaded|is not)|in the (\w+) extension", message
    )
    if "Required module" in message:
        return Skip("needs a Python module")
    if missing or "No files found that match" in message or "HTTP" in message:
        return Skip(message.splitlines()[0][:120])
    return Failure(message[:400])


def _fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[tuple[str, ...]], list[str]]:
    """The rows as DuckDB prints their values, and the types of their columns."""
    relation = connection.sql(sql)
    if relation is None:
        return [], []
    types = [str(kind).upper() for kind in relation.types]
    casts = ", ".join(f"CAST(#{number} AS VARCHAR)" for number in range(1, len(types) + 1))
    rows = relation.project(casts).fetchall()
    return [tuple(_text(value) for value in row) for row in rows], types


def _text(value: str | None) -> str:
    if value is None:
        return "NULL"
    return value.replace("\0", "\\0") if value else "(empty)"
