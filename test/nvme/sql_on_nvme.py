"""SQL on NVMe namespaces through the stock wheel: `sql_on_nvme.py RESULTS PLAN`, inside the guest.

PLAN (test/nvme/guest.sh writes it) names the targets, engines and queue modes to go through, and the
targets that must be refused. Appends a line `PASS name` or `FAIL name: reason` per check to RESULTS, and
prints the failures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import bench_on_nvme
import duckdb
import faults_on_nvme
import fdp_on_nvme
import rawduck
import vfio_on_nvme
from fdp_on_nvme import nvme_cli
from results import Results

TABLES = ("customer", "orders")
QUERIES = (
    "SELECT c_mktsegment, count(*), sum(c_acctbal) FROM customer GROUP BY ALL ORDER BY ALL",
    "SELECT c_name, sum(o_totalprice) AS total FROM customer JOIN orders ON c_custkey = o_custkey "
    "GROUP BY ALL ORDER BY total DESC, c_name LIMIT 20",
    "SELECT sum(hash(c_comment)), max(c_address), min(c_phone) FROM customer",
)


def answers(connection: duckdb.DuckDBPyConnection) -> list[list[tuple]]:
    return [connection.execute(query).fetchall() for query in QUERIES]


def load(connection: duckdb.DuckDBPyConnection, data: str) -> None:
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table} AS FROM '{data}/{table}.parquet'")


def stock_answers(data: str) -> list[list[tuple]]:
    with duckdb.connect() as stock:
        load(stock, data)
        return answers(stock)


def tpch(results: Results, data: str, target: str, engines: list[str], modes: list[str]) -> None:
    expected = stock_answers(data)
    with rawduck.connect() as connection:
        connection.execute("CALL nvme_format(?, force := true)", [target])
    for engine in engines:
        for mode in modes:
            results.check(
                f"tpch on {target} with {engine}, {mode}",
                lambda e=engine, m=mode: one_combination(data, target, e, m, expected),
            )


def one_combination(data: str, target: str, engine: str, mode: str, expected: list[list[tuple]]) -> None:
    path = f"nvme://{target}/{engine.replace(':', '_')}_{mode}.duckdb"
    with connect(engine, mode) as connection:
        connection.execute(f"ATTACH '{path}' AS db; USE db")
        load(connection, data)
        assert answers(connection) == expected, "other answers than stock DuckDB"
        row = connection.execute("SELECT engine, queue_mode, engine_reason FROM nvme_volumes()").fetchone()
        assert engine in ("auto", row[0]), row
        assert row[1] == mode, row
        if target.startswith("vfio:"):
            assert row[0] == ("vfio" if engine == "auto" else engine), row
        elif engine == "auto":
            assert row[0] == "io_uring_cmd", row
            assert row[2].startswith("auto: "), row
        connection.execute(
            "INSERT INTO customer SELECT * REPLACE (c_custkey + 1000000 AS c_custkey) FROM customer"
        )
    with connect(engine, mode) as connection:
        connection.execute(f"ATTACH '{path}' AS db; USE db")
        connection.execute("DELETE FROM customer WHERE c_custkey > 1000000")
        deleted = connection.execute("SELECT count(*) FROM customer").fetchone()[0]
        assert deleted == sum(row[1] for row in expected[0]), "the committed rows were not all there"
        assert answers(connection) == expected, "other answers after reopening"


def connect(engine: str, mode: str) -> duckdb.DuckDBPyConnection:
    connection = rawduck.connect(config={"threads": 4, "block_allocator_memory": "64MB"})
    connection.execute(f"SET nvme_engine = '{engine}'; SET nvme_queues = 'mode={mode}'")
    return connection


def devices(results: Results) -> None:
    with rawduck.connect() as connection:
        query = "SELECT path, serial, capacity, lba_size, nvme FROM nvme_devices() WHERE nvme IS NOT NULL"
        rows = connection.execute(query).fetchall()
    results.check("nvme_devices() lists the namespaces", lambda: require_count(rows))
    for row in rows:
        results.check(f"{row[0]} as nvme-cli sees it", lambda r=row: compare_with_nvme_cli(*r))


def require_count(rows: list[tuple]) -> None:
    assert len(rows) == 9, [row[0] for row in rows]


def compare_with_nvme_cli(path: str, serial: str, capacity: int, lba_size: int, nvme: dict) -> None:
    controller, namespace = nvme_cli("id-ctrl", path), nvme_cli("id-ns", path)
    assert serial == controller["sn"].strip()
    form = namespace["lbafs"][namespace["flbas"] & 15]
    assert lba_size == 1 << form["ds"]
    assert capacity == namespace["nsze"] * lba_size
    assert controller["mdts"] == 0 or nvme["max_command"] <= 4096 << controller["mdts"]
    assert nvme["volatile_write_cache"] == bool(controller["vwc"] & 1)
    assert nvme["deallocate"] == bool(controller["oncs"] & 4)
    assert nvme["fdp"] == (serial == "fdp")


def refused(target: str, text: str) -> None:
    message = "it was formatted"
    with rawduck.connect() as connection:
        try:
            connection.execute("CALL nvme_format(?, force := true)", [target])
        except duckdb.Error as error:
            message = str(error)
    assert text in message, message
    assert target in message, message


def main() -> None:
    results = Results(sys.argv[1])
    plan = json.loads(Path(sys.argv[2]).read_text())
    if "vfio" in plan:
        vfio_on_nvme.check_all(results, plan["vfio"], tpch)
    if plan["only"]:
        return
    devices(results)
    for target, engines, modes in plan["tpch"]:
        tpch(results, plan["data"], target, engines, modes)
    for target, engine, placement in plan["fdp"]:
        fdp_on_nvme.check(results, target, engine, placement)
    fdp_on_nvme.check_settings(results, *plan["fdp_settings"])
    if "bench" in plan:
        bench_on_nvme.check_all(results.check, *plan["bench"])
    for target, text in plan["refusals"]:
        results.check(f"{target} is refused: {text}", lambda t=target, x=text: refused(t, x))
    for name, function, arguments in plan["faults"]:
        body = getattr(faults_on_nvme, function)
        results.check(f"{name}: {arguments[0]}", lambda b=body, a=arguments: b(*a))


if __name__ == "__main__":
    main()
