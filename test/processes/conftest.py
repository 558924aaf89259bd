"""The matrix as a table at the end of the run."""

from __future__ import annotations

import matrix_table


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
