"""The parts of `make gpu-check`, each in a process of its own (run.py). The last line is its result."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import rawduck
from rawduck import gpu, tpch
from rawduck.measuring.gpu.staged import CopyTask
from rawduck.measuring.gpu.tables import DECIMAL_OF_TPCH, as_numbers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sql" / "gpu"))
import cuda_memory
import gpu_support

Q6 = ["l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]
NUMBERS = [
    *("l_orderkey", "l_partkey", "l_suppkey", "l_linenumber", "l_quantity", "l_extendedprice", "l_discount"),
    *("l_tax", "l_shipdate", "l_commitdate", "l_receiptdate"),
]
COLUMNS = {"q6": Q6, "numbers": NUMBERS}
BATCH_ROWS = 4_000_000
RUNS = 5
COPIES = 40
COPIES_OF_TABLE = 4
TABLE = "v.lineitem"


def finish(**result: Any) -> None:
    print(json.dumps(result))


def synchronize() -> None:
    library, popped = cuda_memory.driver(), ctypes.c_void_p()
    assert library.cuCtxPushCurrent_v2(library.context) == 0
    result = library.cuCtxSynchronize()
    library.cuCtxPopCurrent_v2(ctypes.byref(popped))
    assert result == 0, f"cuCtxSynchronize: error {result}"


def open_gpu() -> None:
    """The first scan there is: whatever is wrong with the machine shows here, in one sentence."""
    connection = rawduck.connect()
    connection.execute("CREATE TABLE t AS SELECT 42 AS x")
    (batch,) = gpu.scan(connection, "t")
    assert gpu_support.values_of(batch["x"]) == [42]
    finish(device=batch.report["device"], pinned_bytes=batch.report["pinned_bytes"])


def values() -> None:
    """Every type, with NULLs, against SELECT: small enough for compute-sanitizer."""
    rows, failures = 5_000, []
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"rawduck-gpu-values-{os.getpid()}.duckdb"
    try:
        with rawduck.connect(folder) as connection:
            for name, expression in gpu_support.TYPES.items():
                case = f"CASE WHEN hash(i) % 9 > 0 THEN {expression} END"
                connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT {case} AS x FROM range({rows}) r(i)")
                connection.execute("CHECKPOINT")
                connection.execute("DELETE FROM t WHERE rowid % 11 = 0")
                if gpu_support.scanned(connection) != gpu_support.selected(connection):
                    failures.append(name)
    finally:
        folder.unlink(missing_ok=True)
    assert not failures, f"not what SELECT gives: {', '.join(failures)}"
    finish(types=len(gpu_support.TYPES))


def library(name: str) -> None:
    """Numbers by DLPack, in the stream that the library uses."""
    connection = rawduck.connect()
    connection.execute("CREATE TABLE t AS SELECT i, i / 8 AS x, i % 3 = 0 AS b FROM range(1_000_000) r(i)")
    expected = connection.execute("SELECT sum(i), sum(x), count(*) FILTER (b) FROM t").fetchone()
    found = [0.0, 0.0, 0.0]
    for batch in gpu.scan(connection, "t", batch_rows=300_000):
        for index, column in enumerate("ixb"):
            found[index] += sum_by(name, batch[column])
    assert [float(value) for value in expected] == found, f"{name}: {found}, and SELECT gives {expected}"
    finish(library=name)


def sum_by(name: str, column: gpu.Column) -> float:
    if name == "torch":
        import torch

        return float(torch.from_dlpack(column).double().sum())
    if name == "cupy":
        import cupy

        return float(cupy.asarray(column).astype("f8").sum() + 0 * cupy.from_dlpack(column)[0])
    import jax

    jax.config.update("jax_enable_x64", True)
    return float(jax.dlpack.from_dlpack(column).astype("float64").sum())


def copy_rate(mebibytes: int) -> None:
    """Of copies from pinned memory to the device, by the driver alone: the ceiling of everything else."""
    copies = CopyTask(os.environ.get("RAWDUCK_GPU", "0"), mebibytes << 20, COPIES)
    results = [copies.perform() for _ in range(RUNS)]
    rates = sorted(result.values["gpu_bytes"] / result.wall_seconds for result in results)
    finish(bytes_per_s=rates[RUNS // 2], rates=[round(rate) for rate in rates])


def bars(scale: float, folder: Path) -> None:
    """The numeric columns of lineitem, COPIES_OF_TABLE times over, on a volume in memory; medians."""
    tpch.generate(folder, scale, ("lineitem",))
    connection = rawduck.connect()
    connection.execute(f"SET nvme_memory_size = '{max(1, round(scale * COPIES_OF_TABLE / 4))} GiB'")
    connection.execute("ATTACH 'nvme://memory:gpu-check/t.duckdb' AS v")
    parquet = tpch.parquet_path(folder, "lineitem")
    rows = f"SELECT {', '.join(NUMBERS)} FROM read_parquet('{parquet}')"
    connection.execute(f"CREATE TABLE v.lineitem AS {rows}")
    for _ in range(COPIES_OF_TABLE - 1):
        connection.execute(f"INSERT INTO v.lineitem {rows}")
    connection.execute("CHECKPOINT v")
    finish(**{name: measured(connection, columns) for name, columns in COLUMNS.items()})


def measured(connection: Any, columns: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"equal": are_equal(connection, columns)}
    walls, cores = [], []
    for _ in range(RUNS):
        _, wall, cpu = timed(lambda: scan_all(connection, columns))
        walls.append(wall)
        cores.append(cpu / wall)
    wall, rows = sorted(walls)[RUNS // 2], row_count(connection)
    with gpu.scan(connection, "v.lineitem", columns, batch_rows=BATCH_ROWS) as batches:
        reports = [batch.report for batch in batches]
    found["seconds"], found["rows"] = walls, rows
    found["copied_bytes_per_s"] = sum(report["bytes_copied"] for report in reports) / wall
    found["decoded_bytes_per_s"] = sum(report["bytes_decoded"] for report in reports) / wall
    found["path"] = reports[-1]["path"]
    found["routes"] = sorted({taken["route"] for report in reports for taken in report["routes"]})
    found["cores"] = sorted(cores)[RUNS // 2]
    try:
        import torch

        torch_rows = rows // COPIES_OF_TABLE
        by_torch(torch, connection, columns, 1000)  # PyTorch's own start is not measured
        _, torch_wall, _ = timed(lambda: by_torch(torch, connection, columns, torch_rows))
        found["torch_rows_per_s"] = torch_rows / torch_wall
        found["times_torch"] = rows / wall / found["torch_rows_per_s"]
    except (ImportError, RuntimeError, AssertionError) as error:
        found["torch"] = str(error).splitlines()[0]
    return found


def row_count(connection: Any) -> int:
    return int(connection.execute("SELECT count(*) FROM v.lineitem").fetchone()[0])


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    result = call()
    synchronize()
    return result, time.perf_counter() - start, time.process_time() - cpu


def scan_all(connection: Any, columns: list[str]) -> None:
    with gpu.scan(connection, "v.lineitem", columns, batch_rows=BATCH_ROWS) as batches:
        for _ in batches:
            pass


def by_torch(torch: Any, connection: Any, columns: list[str], rows: int) -> None:
    """What DuckDB offers: tensors in host memory, then copied."""
    chosen = as_numbers(connection, TABLE, columns, "{}::DOUBLE")
    tensors = connection.sql(f"SELECT {chosen} FROM v.lineitem WHERE rowid < {rows}").torch()
    for tensor in tensors.values():
        tensor.cuda()
    torch.cuda.synchronize()


def are_equal(connection: Any, columns: list[str]) -> bool:
    """Every value of every row."""
    chosen, first = as_numbers(connection, TABLE, columns, DECIMAL_OF_TPCH), 0
    with gpu.scan(connection, "v.lineitem", columns, batch_rows=BATCH_ROWS, decimal="int64") as batches:
        for batch in batches:
            rows = f"rowid >= {first} AND rowid < {first + len(batch)}"
            expected = (
                connection.cursor().execute(f"SELECT {chosen} FROM v.lineitem WHERE {rows}").fetchnumpy()
            )
            for name in columns:
                if not numpy.array_equal(gpu_support.numbers_of(batch[name]), expected[name]):
                    return False
            first += len(batch)
    return first == row_count(connection)


def main() -> None:
    name, *arguments = sys.argv[1:]
    if name == "open":
        open_gpu()
    elif name == "values":
        values()
    elif name == "library":
        library(arguments[0])
    elif name == "copy-rate":
        copy_rate(int(arguments[0]))
    else:
        bars(float(arguments[0]), Path(arguments[1]))


if __name__ == "__main__":
    main()
