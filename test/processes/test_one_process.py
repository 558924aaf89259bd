"""A file that stock DuckDB has attached in this process: our functions must not cost it its lock.

POSIX drops all locks that a process has on a file as soon as it closes any descriptor of that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pytest
from machine import locks_on, new_image
from places import OF_A_FILE, VOLUME_BYTES
from workers import Worker, workers

ROWS = 1000
#: {t}: the file, {n}: an ordinary file to copy, {v}: a volume of our own.
STATEMENTS = {
    "format": "CALL nvme_format('{t}', force := true)",
    "format --size": "CALL nvme_format('{t}', size := '32M', force := true)",
    "occupants": "FROM nvme_occupants('{t}')",
    "check": "SELECT * FROM nvme_check('{t}')",
    "repair": "SELECT * FROM nvme_check('{t}', repair := true)",
    "trim": "CALL nvme_trim('{t}')",
    "ls": "SELECT * FROM nvme_files('{t}')",
    "info": "SELECT * FROM nvme_info('{t}')",
    "rm": "CALL nvme_remove('nvme://{t}/x')",
    "attach rw": "ATTACH 'nvme://{t}/x' AS y",
    "attach ro": "ATTACH 'nvme://{t}/x' AS y (READ_ONLY)",
    "direct rw": "ATTACH 'direct://{t}' AS y",
    "direct ro": "ATTACH 'direct://{t}' AS y (READ_ONLY)",
    "cp in": "CALL nvme_copy('{n}', 'nvme://{t}/in.bin')",
    "random reads": "SELECT * FROM nvme_random_reads('{t}', seconds := 0.1)",
}

#: Only for regular files: a copy takes the place of whatever it replaces, device nodes too.
COPIES = {
    "cp over it": "CALL nvme_copy('{n}', '{t}', overwrite := true)",
    "cp of it": "CALL nvme_copy('{t}', 'nvme://{v}/out.bin', overwrite := true)",
}


@pytest.fixture(scope="module")
def crew() -> Iterator[list[Worker]]:
    with workers(2) as made:
        yield made


@pytest.fixture
def stock_file(tmp_path) -> Path:
    path = tmp_path / "stock.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute(f"CREATE TABLE t AS SELECT range AS v FROM range({ROWS})")
    return path


@pytest.mark.parametrize("way", OF_A_FILE)
def test_its_lock_stays(way, stock_file, tmp_path, crew):
    attached, outsider = crew
    ordinary = new_image(tmp_path / "ordinary.bin", 1024**2)
    with ExitStack() as stack:
        name = OF_A_FILE[way](str(stock_file), tmp_path, stack)
        attached.run(f"CALL nvme_format('{tmp_path}/v.rawduck', size := '{VOLUME_BYTES}')")
        attached.run(f"ATTACH '{stock_file}' AS x", "INSERT INTO x.t VALUES (5000)")
        before = locks_on(stock_file)
        assert any(f" {attached.pid} " in lock for lock in before)
        wrong = []
        copies = {} if Path(name).is_block_device() else COPIES
        for what, statement in {**STATEMENTS, **copies}.items():
            filled = statement.format(t=name, n=ordinary, v=tmp_path / "v.rawduck")
            answer = attached.ask("run", statements=[filled])
            if answer.ok:
                wrong.append(f"{what}: not refused")
            if locks_on(stock_file) != before:
                wrong.append(f"{what}: the lock is gone")
                break
        attached.run("SELECT * FROM nvme_devices()")
        try:
            assert wrong == []
            assert locks_on(stock_file) == before
            assert not outsider.ask("run", statements=[f"ATTACH '{stock_file}' AS x"]).ok
        finally:
            attached.ask("run", statements=["INSERT INTO x.t VALUES (5001)"])
            attached.ask("close")
            outsider.ask("close")
    with duckdb.connect(str(stock_file)) as con:
        assert con.execute("SELECT count(*) FROM t").fetchone() == (ROWS + 2,)
