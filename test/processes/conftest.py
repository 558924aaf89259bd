"""The matrix as a table at the end of the run, and a volume to write to and read beside the writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import matrix_table
import pytest
import rawduck
from live_volume import MIB, ROWS_OF, VOLUME_BYTES
from machine import loop_over


def pytest_terminal_summary(terminalreporter) -> None:
    rows = [
        dict(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "matrix" and report.when == "call"
    ]
    for line in matrix_table.lines(rows):
        terminalreporter.write_line(line)


@pytest.fixture(params=["file", "block device"])
def volume(request, tmp_path: Path) -> Iterator[str]:
    image = tmp_path / "volume.img"
    con = rawduck.connect()
    con.execute(f"CALL nvme_format('{image}', size := '{VOLUME_BYTES // MIB}MB')")
    with ExitStack() as stack:
        target = str(image) if request.param == "file" else stack.enter_context(loop_over(image))
        con.execute(f"ATTACH 'nvme://{target}/x.duckdb' AS x")
        con.execute("CREATE TABLE x.log AS SELECT 0 AS n")
        con.execute(f"CREATE TABLE x.t AS {ROWS_OF.format(0)}")
        con.close()
        yield target
        check = rawduck.connect().execute("SELECT * FROM nvme_check(?) WHERE severity <> 'ok'", [target])
        assert check.fetchall() == []
