"""Tables, and results of queries, as batches of columns for GPU libraries.

`scan` reads compressed blocks of a table and decodes them by kernels. `query` lets DuckDB compute any SELECT.

>>> import rawduck, rawduck.gpu as gpu
>>> connection = rawduck.connect("nvme:///dev/nvme1n1/sales.duckdb")
>>> columns = ["l_quantity", "l_shipdate"]
>>> for batch in gpu.scan(connection, "lineitem", columns, decimal="float64", device="emulated"):
...     x = numpy.from_dlpack(batch["l_quantity"])

A device is a GPU, by its number, or "emulated": host memory, and the same kernels as loops. docs/GPU.md
says more.
"""

from __future__ import annotations

import ctypes
import json
import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import duckdb

from rawduck.connection import extension_path, load
from rawduck.errors import RawduckError
from rawduck.paths import quote
from rawduck.render import Rows, rows

#: A column, one of = < <= > >=, and what to compare it with.
Condition = tuple[str, str, Any]

DECIMAL_FORMS = ("arrow", "int64", "float64")
_WHOLE_BATCH = -1
_CUDA = 2
_DEFAULT_STREAM = 1
#: Of NumPy, by the first letters of Arrow's formats.
_TYPE_STRINGS = {
    **{"b": "|b1", "c": "|i1", "C": "|u1", "s": "<i2", "S": "<u2", "i": "<i4", "I": "<u4"},
    **{"l": "<i8", "L": "<u8", "f": "<f4", "g": "<f8", "td": "<i4", "tt": "<i8", "ts": "<i8"},
}
_NOT_YET = 2
_BATCH_ROWS_MAX = 2**31 - 1


class _Options(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_char_p),
        ("batch_rows", ctypes.c_uint64),
        ("decimal_form", ctypes.c_int32),
        ("has_null_value", ctypes.c_int32),
        ("null_value", ctypes.c_double),
    )


def _path() -> str:
    return str(extension_path().with_name("librawduck_host.so"))


@cache
def _library() -> ctypes.CDLL:
    """The extension that is loaded already; see src/gpu/exports/c_interface.hpp."""
    library = ctypes.CDLL(_path())
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    declarations = {
        "error": (ctypes.c_char_p, []),
        "announce": (number, [ctypes.POINTER(_Options), ctypes.POINTER(ctypes.c_uint64)]),
        "begin": (number, [ctypes.c_uint64]),
        "next": (number, [ctypes.c_uint64, ctypes.POINTER(pointer)]),
        "close": (None, [ctypes.c_uint64]),
        "free_batch": (None, [pointer]),
        "describe": (ctypes.c_char_p, [pointer]),
        "report": (ctypes.c_char_p, [pointer]),
        "wait": (number, [pointer, ctypes.c_int64]),
        "numbers": (number, [pointer, number, ctypes.POINTER(ctypes.c_uint64)]),
    }
    for name, (result, arguments) in declarations.items():
        function = getattr(library, f"rawduck_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    return library


@cache
def _capsules() -> ctypes.PyDLL:
    """The same, called with Python's lock: capsules are Python objects."""
    library = ctypes.PyDLL(_path())
    for name, numbers in (("schema", 1), ("array", 1), ("tensor", 2)):
        function = getattr(library, f"rawduck_gpu_{name}_capsule")
        function.restype = ctypes.c_void_p  # not py_object: ctypes has no way to say null with that
        function.argtypes = [ctypes.c_void_p] + [ctypes.c_int32] * numbers
    return library


def _capsule(name: str, *arguments: int) -> Any:
    address = getattr(_capsules(), f"rawduck_gpu_{name}_capsule")(*arguments)
    if not address:
        raise _failure()
    capsule = ctypes.cast(address, ctypes.py_object).value  # with a reference of its own
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(capsule))
    return capsule


def _failure() -> RawduckError:
    return RawduckError(_error()[1])


def _query_failure() -> Exception:
    """DuckDB's errors as DuckDB's own Python package has them: those are about the query."""
    kind, message = _error()
    if kind is None:
        return RawduckError(message)
    wanted = f"{kind.replace(' ', '')}exception".lower()
    return next((getattr(duckdb, n) for n in dir(duckdb) if n.lower() == wanted), duckdb.Error)(
        f"{kind} Error: {message}"
    )


def _error() -> tuple[str | None, str]:
    """Kind and message of an exception of DuckDB, which comes as JSON; no kind for others."""
    text = _library().rawduck_gpu_error().decode("utf-8", "replace")
    try:
        found = json.loads(text)
        return found["exception_type"], found["exception_message"]
    except (ValueError, KeyError, TypeError):
        return None, text


class _Handle(ctypes.c_void_p):
    """Of a batch, given back with the last reference, wherever an interrupt strikes."""

    def __del__(self) -> None:
        if self.value is not None:
            _library().rawduck_gpu_free_batch(self)


class _Ticket(ctypes.c_uint64):
    """Of a scan or query, which is closed with the last reference, wherever an interrupt strikes."""

    def close(self) -> None:
        if self.value != 0:
            _library().rawduck_gpu_close(self)

    __del__ = close


class Column:
    """A column of a batch. Whatever consumes it shares the batch's memory."""

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch, self._index = batch, index
        description = batch._columns[index]
        self.name: str = description["name"]
        #: Of the Arrow C data interface.
        self.format: str = description["format"]
        self.null_count: int = description["nulls"]

    def __len__(self) -> int:
        return len(self._batch)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, ordinal = self._batch._device
        return kind, ordinal

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Of version 3. The default stream waits for the batch, and consumers order theirs behind it."""
        if self._batch._device[0] != _CUDA:
            raise AttributeError(f"{self.name} lies in host memory, which has no __cuda_array_interface__")
        address = ctypes.c_uint64()
        if _library().rawduck_gpu_numbers(self._batch._handle, self._index, ctypes.byref(address)) < 0:
            raise AttributeError(str(_failure()))
        self._batch._wait(_DEFAULT_STREAM)
        return {
            "shape": (len(self),),
            "typestr": _TYPE_STRINGS[self.format[:2]],
            "data": (address.value, False),
            "strides": None,
            "stream": _DEFAULT_STREAM,
            "version": 3,
        }

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Numbers, booleans, dates and times, the latter as the numbers that Arrow gives them."""
        is_cuda = self._batch._device[0] == _CUDA
        if stream is not None and not is_cuda:
            raise BufferError("memory of the host has no streams; pass stream=None")
        if stream is not None and (stream == 0 or stream < -1):
            raise BufferError(f"stream={stream} is none; 1 is CUDA's default stream, -1 waits for nothing")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the batch lies on {self._batch.report['device']}, not on device {dl_device}")
        if copy:
            raise BufferError("a column of a batch is handed out as it is; copy it where you take it")
        is_versioned = max_version is not None and max_version[0] >= 1
        try:
            capsule = _capsule("tensor", self._batch._handle, self._index, int(is_versioned))
            if is_cuda:
                self._batch._wait(_DEFAULT_STREAM if stream is None else stream)
            return capsule
        except RawduckError as error:
            raise BufferError(str(error)) from None

    def __arrow_c_schema__(self) -> Any:
        return _capsule("schema", self._batch._handle, self._index)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> tuple[Any, Any]:
        handle = self._batch._handle
        return _capsule("schema", handle, self._index), _capsule("array", handle, self._index)


class Batch:
    """Rows of a table or of a query, column by column. Its memory is freed when it and all that took it are
    gone."""

    def __init__(self, handle: _Handle) -> None:
        self._handle = handle
        description = json.loads(_library().rawduck_gpu_describe(handle).decode("utf-8", "surrogateescape"))
        self._columns = description["columns"]
        self._rows: int = description["rows"]
        self._device: list[int] = description["device"]

    def __len__(self) -> int:
        return self._rows

    @cached_property
    def report(self) -> dict[str, Any]:
        """What was read, copied to the device and decoded, in bytes; how long it took; and for each column of
        each row group that was read for this batch, whether it was decoded ("gpu") or scanned by DuckDB.

        Of a query the route is "query", and `peak_waiting_bytes` says how much host memory at most it has had
        for rows that were computed and not taken.
        """
        text = _library().rawduck_gpu_report(self._handle)
        if text is None:
            raise _failure()
        return json.loads(text.decode("utf-8", "surrogateescape"))

    def _wait(self, stream: int) -> None:
        """Makes a stream of CUDA wait until the batch is there."""
        if _library().rawduck_gpu_wait(self._handle, stream) < 0:
            raise _failure()

    @property
    def column_names(self) -> list[str]:
        return [column["name"] for column in self._columns]

    def __getitem__(self, name: str) -> Column:
        names = self.column_names
        if name not in names:
            raise KeyError(f"the batch has no column {name!r}; it has {', '.join(names)}")
        return Column(self, names.index(name))

    def __arrow_c_schema__(self) -> Any:
        return _capsule("schema", self._handle, _WHOLE_BATCH)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> tuple[Any, Any]:
        return _capsule("schema", self._handle, _WHOLE_BATCH), _capsule("array", self._handle, _WHOLE_BATCH)


@dataclass
class _Source:
    """A scan or query that is announced or open, and the connection that was made for it."""

    ticket: _Ticket
    own: duckdb.DuckDBPyConnection | None = None

    def close(self) -> None:
        self.ticket.close()
        if self.own is not None:
            self.own.close()
            self.own = None


class Batches(Iterator[Batch]):
    """The batches of a scan or query, in the order of their rows. Closed at the end, by `close`, at the end
    of a `with`, or with its last reference; also by an error or Ctrl-C while it waits for a batch."""

    def __init__(self, source: _Source, failure: Callable[[], Exception]) -> None:
        self._source, self._failure = source, failure
        self._finalizer = weakref.finalize(self, source.close)

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what the scan holds: blocks, and a transaction of its own. Ends the query. Batches stay
        valid."""
        self._finalizer()

    def __next__(self) -> Batch:
        if not self._finalizer.alive:
            raise StopIteration
        handle = _Handle()
        try:
            batch = self._next(handle)
        except BaseException as error:
            is_closed = not self._finalizer.alive  # by another thread, which has seen the end
            self.close()
            if is_closed and isinstance(error, Exception):
                raise StopIteration from None
            raise
        if batch is None:
            self.close()
            raise StopIteration
        return batch

    def _next(self, handle: _Handle) -> Batch | None:
        next_batch = _library().rawduck_gpu_next
        while (result := next_batch(self._source.ticket, ctypes.byref(handle))) == _NOT_YET:
            pass  # Ctrl-C is raised here: no signal is handled inside a call
        if result < 0:
            raise self._failure()
        return Batch(handle) if result > 0 else None


def scan(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[str] | None = None,
    *,
    batch_rows: int = 1_000_000,
    where: Sequence[Condition] = (),
    nulls: str | float = "error",
    decimal: str = "arrow",
    device: str | int | None = None,
) -> Batches:
    """The rows of a table in batches, exactly as `SELECT` gives them in the same transaction.

    In a transaction of the connection: as that sees the table, its own changes included. It must be open
    until the last batch, and must not change rows meanwhile. Otherwise the scan has a connection and a
    transaction of its own.

    `batch_rows`: of each batch but the last one; fewer where strings of a column exceed 2 GiB.
    `where`: row groups in which, by their statistics, no row satisfies all conditions are left out. Rows are
    not filtered: the consumer does that.
    `nulls`: what consumers of DLPack find in place of NULL, a number that each such column can hold. With
    "error", such a column is refused. Arrow has NULL in any case.
    `decimal`: "arrow"; "float64"; or "int64", the number without its point.
    `device`: the number of a GPU, or "emulated". Without it, what RAWDUCK_GPU in the environment says, or
    else 0.
    """
    if isinstance(columns, str):
        raise ValueError(f"columns={columns!r} is one string; pass a list of names: columns=[{columns!r}]")
    if columns is not None and len(columns) == 0:
        raise ValueError("columns=[] names no column; leave it out to scan all of them")
    source = _announce(connection, batch_rows, nulls, decimal, device)
    try:
        _open(source, connection, table, columns, where)
        return Batches(source, _failure)
    except BaseException:
        source.close()
        raise


def query(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    batch_rows: int = 1_000_000,
    nulls: str | float = "error",
    decimal: str = "arrow",
    device: str | int | None = None,
) -> Batches:
    """The result of a SELECT in batches. DuckDB computes it, in its threads.

    It runs on the connection itself: with its settings, temporary tables and registered objects, in its
    transaction where it has one. Until the last batch, or until it is closed, DuckDB refuses other statements
    there: `connection.cursor()` makes a connection for them. Rows come in the order of the query.

    `params`: values of ? and $1 as a list, of $name as a dictionary, as `connection.execute` takes them.
    The other arguments are those of `scan`. Errors of the query are DuckDB's own.
    """
    names = [f"{quote(name)}: ?" for name in params] if isinstance(params, Mapping) else None
    values = list(params.values() if isinstance(params, Mapping) else params or ())
    packed = f"{{{', '.join(names)}}}" if names is not None else f"row({', '.join('?' * len(values))})"
    source = _announce(connection, batch_rows, nulls, decimal, device)
    try:
        opening = f"FROM gpu_open_query(?, ?, parameters := {packed if values else 'NULL'})"
        rows(connection, opening, [str(source.ticket.value), query, *values])
        if _library().rawduck_gpu_begin(source.ticket) < 0:
            raise _query_failure()
        return Batches(source, _query_failure)
    except BaseException:
        source.close()
        raise


def _announce(
    connection: duckdb.DuckDBPyConnection,
    batch_rows: int,
    nulls: str | float,
    decimal: str,
    device: str | int | None,
) -> _Source:
    if decimal not in DECIMAL_FORMS:
        raise ValueError(f"decimal={decimal!r}; it is one of {', '.join(DECIMAL_FORMS)}")
    if isinstance(nulls, str) and nulls != "error":
        raise ValueError(f'nulls={nulls!r}; it is "error" or a number')
    if not 1 <= batch_rows <= _BATCH_ROWS_MAX:
        raise ValueError(f"batch_rows={batch_rows}; a batch has 1 to {_BATCH_ROWS_MAX} rows")
    if not isinstance(nulls, str) and float(nulls) != nulls and not math.isnan(nulls):
        raise ValueError(f"nulls={nulls!r}; it is a number that a double holds exactly")
    load(connection)
    options = _Options(
        ("" if device is None else str(device)).encode(),
        batch_rows,
        DECIMAL_FORMS.index(decimal),
        int(not isinstance(nulls, str)),
        0.0 if isinstance(nulls, str) else float(nulls),
    )
    source = _Source(_Ticket())
    if _library().rawduck_gpu_announce(ctypes.byref(options), ctypes.byref(source.ticket)) < 0:
        raise _failure()
    return source


def _open(
    source: _Source,
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Sequence[str] | None,
    where: Sequence[Condition],
) -> None:
    query = "FROM gpu_open_scan(?, ?, columns := ?::VARCHAR[], conditions := ?::VARCHAR[])"
    conditions = []
    if where:
        with connection.cursor() as cursor:  # the constants need no transaction
            conditions = [text for condition in where for text in _as_texts(cursor, condition)]
    parameters = [list(columns) if columns is not None else None, conditions]
    (opened,) = rows(connection, query, [str(source.ticket.value), table, *parameters])
    if not opened["is_open"]:
        source.own = connection.cursor()
        source.own.execute("BEGIN TRANSACTION READ ONLY")
        rows(source.own, query, [str(source.ticket.value), opened["table_name"], *parameters])


def _as_texts(cursor: duckdb.DuckDBPyConnection, condition: Condition) -> tuple[str, str, str, str]:
    column, operator, constant = condition
    if constant is None:
        raise ValueError(f"{column} {operator} NULL is true for no row")
    text, kind = cursor.execute("SELECT $1::VARCHAR, typeof($1)", [constant]).fetchall()[0]
    return column, operator, text, kind


def explain(connection: duckdb.DuckDBPyConnection, table: str) -> Rows:
    """For each column and route: codecs, row groups, rows, compressed bytes, and why DuckDB scans them."""
    load(connection)
    query = """SELECT column_name, column_type, route, reason,
        string_agg(DISTINCT codec, ', ' ORDER BY codec) FILTER (part = 'data') AS codecs,
        count(DISTINCT row_group) AS row_groups,
        coalesce(sum(rows) FILTER (part = 'data'), 0)::BIGINT AS rows,
        coalesce(sum(bytes), 0)::BIGINT AS bytes
        FROM gpu_segments(?) GROUP BY ALL ORDER BY column_name, route DESC, reason"""
    return rows(connection, query, [table])
