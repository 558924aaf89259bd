"""What the tests of tables on the GPU share: batches as Python values, and SELECT's as the same ones."""

from __future__ import annotations

import ctypes
import decimal
import struct
import uuid
from collections.abc import Iterable
from typing import Any

import cuda_memory
import nanoarrow
import nanoarrow.device
import numpy
from rawduck import gpu

EXACT = decimal.Context(prec=50)

ROWS = 7_000

#: A value of each type from a number i; what DuckDB stores differs with the pattern of the numbers.
TYPES = {
    "BOOLEAN": "(i % 3 = 0)",
    "TINYINT": "((i % 200) - 100)::TINYINT",
    "UTINYINT": "(i % 256)::UTINYINT",
    "SMALLINT": "((i % 60000) - 30000)::SMALLINT",
    "USMALLINT": "(i % 65536)::USMALLINT",
    "INTEGER": "(i - 1000)::INTEGER",
    "UINTEGER": "(i + 4000000000 - i % 7)::UINTEGER",
    "BIGINT": "(i * 1000003 - 5000000000)",
    "UBIGINT": "(18446744073709000000::UBIGINT + i)",
    "HUGEINT": "(i::HUGEINT * 10000000000000000000 - 7)",
    "DECIMAL(4,1)": "((i % 9999) / 10)::DECIMAL(4,1)",
    "DECIMAL(9,2)": "(i / 100)::DECIMAL(9,2)",
    "DECIMAL(18,3)": "(i * 12345.678)::DECIMAL(18,3)",
    "DECIMAL(38,10)": "(i::DECIMAL(38,10) * 1234567890)",
    "FLOAT": "(i / 7)::FLOAT",
    "DOUBLE": "round(i / 7, 2)",
    "DOUBLE (any)": "sin(i) * exp(i % 300)",
    "DATE": "(DATE '1900-01-01' + (i % 50000)::INTEGER)",
    "TIME": "(TIME '00:00:00' + INTERVAL (i % 86400) SECOND)",
    "TIMESTAMP": "(TIMESTAMP '2020-01-01 00:00:00.123456' + INTERVAL (i) SECOND)",
    "TIMESTAMP_S": "(TIMESTAMP '1960-01-01' + INTERVAL (i) MINUTE)::TIMESTAMP_S",
    "TIMESTAMP_MS": "(TIMESTAMP '1960-01-01' + INTERVAL (i) MINUTE)::TIMESTAMP_MS",
    "VARCHAR": "('value ' || (i % 1000))",
    "VARCHAR (long)": "repeat(md5(i::VARCHAR), (i % 9)::INTEGER)",
    "BLOB": "('\\x00\\xFF'::BLOB || encode((i % 50)::VARCHAR))",
    "UUID": "(md5(i::VARCHAR))::UUID",
}
NULLS = {
    "none": "false",
    "few": "hash(i) % 1000 = 0",
    "half": "hash(i) % 2 = 0",
    "runs": "(i // 5000) % 2 = 0",
    "all": "true",
}


def values_of(column: gpu.Column) -> list[Any]:
    """A column of a batch as Python values, by Arrow."""
    is_cuda = column.__dlpack_device__()[0] == cuda_memory.CUDA
    array = cuda_memory.host_array(column) if is_cuda else nanoarrow.device.c_device_array(column).array
    kind, _, parameters = column.format.partition(":")
    return decimals_of(array, parameters) if kind == "d" else nanoarrow.Array(array).to_pylist()


def numbers_of(column: gpu.Column) -> Any:
    """A column of numbers as NumPy's, by DLPack, or from a GPU by __cuda_array_interface__."""
    if column.__dlpack_device__()[0] != cuda_memory.CUDA:
        return numpy.from_dlpack(column)
    form = column.__cuda_array_interface__
    kind = numpy.dtype(form["typestr"])
    content = cuda_memory.copied(form["data"][0], form["shape"][0] * kind.itemsize)
    return numpy.frombuffer(content, kind)


def decimals_of(array: Any, parameters: str) -> list[Any]:
    """nanoarrow reads the structure of decimals of 32 and 64 bits, but not their values."""
    _, scale, bits = (int(number) for number in f"{parameters},128".split(",")[:3])
    width, length = bits // 8, array.length
    bitmap, values = array.buffers
    raw = ctypes.string_at(values, width * length)
    valid = ctypes.string_at(bitmap, (length + 7) // 8) if bitmap else b"\xff" * ((length + 7) // 8)
    numbers = [int.from_bytes(raw[i : i + width], "little", signed=True) for i in range(0, len(raw), width)]
    return [
        decimal.Decimal(number).scaleb(-scale, EXACT) if valid[i // 8] >> i % 8 & 1 else None
        for i, number in enumerate(numbers)
    ]


def columns_of(batches: Iterable[gpu.Batch]) -> list[list]:
    """The columns of all batches, comparable with `selected`; empty where there is no batch."""
    columns: list[list] = []
    for batch in batches:
        parts = [values_of(batch[name]) for name in batch.column_names]
        columns = columns or [[] for _ in parts]
        for column, part in zip(columns, parts, strict=True):
            column += part
    return [comparable(column) for column in columns]


def queried(connection, query, params=None, **options) -> list[list]:
    with gpu.query(connection, query, params, **options) as batches:
        return columns_of(batches)


def scanned(connection, table="t", columns=None, **options) -> list[list]:
    with gpu.scan(connection, table, columns, **options) as batches:
        return columns_of(batches)


def selected(connection, table="t", columns="*") -> list[list]:
    rows = connection.execute(f"SELECT {columns} FROM {table}").fetchall()
    return [comparable(list(column)) for column in zip(*rows, strict=True)]


def comparable(column: list[Any]) -> list[Any]:
    """Floats by their bits: NaN equals itself, -0.0 is not 0.0. UUIDs by their bytes."""
    some = next((value for value in column if value is not None), None)
    if isinstance(some, float):
        return [None if value is None else struct.pack("<d", value) for value in column]
    if isinstance(some, uuid.UUID):
        return [None if value is None else value.bytes for value in column]
    return column


def checksum_of(block: bytes) -> bytes:
    """What stands before the contents of a block of a database, for damage whose checksum fits."""
    words = numpy.frombuffer(block, "<u8")[1:] * numpy.uint64(0xBF58476D1CE4E5B9)
    return struct.pack("<Q", 5381 ^ int(numpy.bitwise_xor.reduce(words)))
