"""Columns of a table to the GPU: by rawduck's routes, by DuckDB and a copy, and by DuckDB's own tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from rawduck import gpu
from rawduck.errors import RawduckError
from rawduck.measuring.gpu.device_memory import EMULATED, open_memory
from rawduck.measuring.gpu.staged import Bounce
from rawduck.measuring.measure import Result, Session, Stopwatch
from rawduck.paths import quote

SCAN, QUERY, NUMPY, TORCH = "scan", "query", "numpy", "torch"
_MEMORY_VOLUME = "nvme://memory:gpu-paths/t.duckdb"
_CUDA = 2
#: All of them have two digits behind the point.
DECIMAL_OF_TPCH = "({} * 100)::BIGINT"
_BATCH_ROWS = 4_000_000


@dataclass
class TableTask(Session):
    """All rows of some columns of `table`, as numbers, by one way. The answer is the sum of each column, from
    the device."""

    way: str = SCAN
    device: str = "0"
    table: str = "lineitem"
    columns: tuple[str, ...] = ()
    #: A Parquet file that is loaded first, into a volume in memory of that size, in place of `database`.
    load: str = ""
    load_gib: int = 1

    def perform(self) -> Result:
        with self._open() as connection:
            return {SCAN: self._routed, QUERY: self._routed, NUMPY: self._numpy, TORCH: self._torch}[
                self.way
            ](connection)

    def _open(self) -> Any:
        if not self.load:
            return self.open()
        connection = self.connect()
        connection.execute(f"SET nvme_memory_size = '{self.load_gib} GiB'")
        connection.execute(f"ATTACH {quote(_MEMORY_VOLUME)} AS measured")
        connection.execute("USE measured")
        chosen = ", ".join(self.columns)
        connection.execute(
            f"CREATE TABLE {self.table} AS SELECT {chosen} FROM read_parquet({quote(self.load)})"
        )
        connection.execute("CHECKPOINT measured")
        return connection

    def _routed(self, connection: Any) -> Result:
        options = {"batch_rows": _BATCH_ROWS, "decimal": "int64", "device": self._device}
        batches = []
        with open_memory(self.device) as memory, Stopwatch() as watch:
            if self.way == SCAN:
                source = gpu.scan(connection, self.table, self.columns, **options)
            else:
                source = gpu.query(
                    connection, f"SELECT {', '.join(self.columns)} FROM {self.table}", **options
                )
            with source:
                batches.extend(source)
            memory.synchronize()  # a batch is handed out before it is there
        reports = [batch.report for batch in batches]
        sums = [sum(int(_numbers(batch[name]).sum()) for batch in batches) for name in self.columns]
        values = {"gpu_bytes": float(sum(report["bytes_copied"] for report in reports))}
        decoded = sum(report["bytes_decoded"] for report in reports)
        if decoded:
            values["decoded_bytes"] = float(decoded)
        return watch.result(rows=[tuple(sums)], values=values, columns=[reports[-1].get("path", "")])

    def _numpy(self, connection: Any) -> Result:
        """DuckDB decodes in its threads, then the arrays are copied."""
        query = f"SELECT {self._numbers_of(connection)} FROM {self.table}"
        with open_memory(self.device) as memory:
            bounce = Bounce(memory)
            with Stopwatch() as watch:
                arrays = [
                    numpy.ascontiguousarray(array) for array in connection.sql(query).fetchnumpy().values()
                ]
                places = [memory.allocate(array.nbytes) for array in arrays]
                for array, place in zip(arrays, places, strict=True):
                    bounce.copy(array.ctypes.data, array.nbytes, place)
                bounce.wait()
            copied = [
                numpy.frombuffer(memory.copied_out(place, array.nbytes), array.dtype)
                for array, place in zip(arrays, places, strict=True)
            ]
            bounce.close()
        return _result(watch, copied)

    def _torch(self, connection: Any) -> Result:
        try:
            import torch
        except ImportError:
            raise RawduckError("PyTorch is not installed (pip install torch)") from None
        query = f"SELECT {self._numbers_of(connection)} FROM {self.table}"
        where = "cpu" if self.device == EMULATED else f"cuda:{self.device}"
        torch.zeros(1).to(where)  # its own start is not measured
        with Stopwatch() as watch:
            tensors = [tensor.to(where) for tensor in connection.sql(query).torch().values()]
            if where != "cpu":
                torch.cuda.synchronize()
        return _result(watch, [tensor.cpu().numpy() for tensor in tensors])

    def _numbers_of(self, connection: Any) -> str:
        """What rawduck puts on the device: a DECIMAL without its point."""
        return as_numbers(connection, self.table, self.columns, DECIMAL_OF_TPCH)

    @property
    def _device(self) -> str | int:
        return self.device if self.device == EMULATED else int(self.device)


def _result(watch: Stopwatch, arrays: list[Any]) -> Result:
    sums = tuple(int(array.sum(dtype=numpy.int64)) for array in arrays)
    return watch.result(rows=[sums], values={"gpu_bytes": float(sum(array.nbytes for array in arrays))})


def as_numbers(connection: Any, table: str, columns: Sequence[str], decimal: str) -> str:
    """Expressions for what tensors can hold: a date as days, a DECIMAL as `decimal` says, with {} for it."""
    types = dict(connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {table})").fetchall())
    return ", ".join(
        f"{decimal.format(name)} AS {name}"
        if types[name].startswith("DECIMAL")
        else f"datediff('day', DATE '1970-01-01', {name})::INTEGER AS {name}"
        if types[name] == "DATE"
        else name
        for name in columns
    )


def _numbers(column: gpu.Column) -> Any:
    """In host memory."""
    if column.__dlpack_device__()[0] != _CUDA:
        return numpy.from_dlpack(column).astype(numpy.int64)
    form = column.__cuda_array_interface__
    kind = numpy.dtype(form["typestr"])
    with open_memory(str(column.__dlpack_device__()[1])) as memory:
        content = memory.copied_out(form["data"][0], form["shape"][0] * kind.itemsize)
    return numpy.frombuffer(content, kind).astype(numpy.int64)
