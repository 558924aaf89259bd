"""Statements that take long: what they have done is shown meanwhile, and Ctrl-C ends them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from rawduck import render

_POLL_SECONDS = 0.1
# Between two lines where there is no terminal that a bar could move on.
_LINE_SECONDS = 10.0


@contextlib.contextmanager
def in_one_piece() -> Iterator[list[int]]:
    """For what is done at once: Ctrl-C comes when it is done, and when it has been said that it is. Who
    ignores interrupts goes on doing so. Yields what will have come by then."""
    came: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came
        return
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def progress_bar(shown: bool = True, sizes: bool = True) -> Progress:
    """A bar where there is a terminal for it. `sizes`: its total is in bytes, and not in percent."""
    of_bytes = (DownloadColumn(binary_units=True), TransferSpeedColumn()) if sizes else ()
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        *of_bytes,
        TimeRemainingColumn(),
        console=render.error_console,
        transient=True,
        disable=not (shown and render.error_console.is_terminal),
    )


class ShownBytes:
    """Moves the bar of one file, or prints a line now and then where there is no terminal."""

    def __init__(self, command: str, progress: Progress, task: TaskID, total: int) -> None:
        self._command, self._progress, self._task, self._total = command, progress, task, total
        self._line_at = time.monotonic() + _LINE_SECONDS

    def __call__(self, percent: float) -> None:
        done = self._total * percent / 100
        self._progress.update(self._task, completed=done)
        if self._progress.disable and time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_SECONDS
            render.print_note(f"{self._command}: {render.size(done)} of {render.size(self._total)}")


def run_shown(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    parameters: list[Any],
    show: Callable[[float], None] | None,
) -> render.Row:
    """Runs it on a thread and shows what DuckDB reports as done, in percent. Returns its only row."""
    connection.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")

    def look() -> None:
        percent = connection.query_progress()
        if show and percent > 0:
            show(percent)

    return run_interruptible(connection, query, parameters, look)[0]


def run_interruptible(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    parameters: list[Any],
    look: Callable[[], None] = lambda: None,
) -> render.Rows:
    """Runs it on a thread, so that Ctrl-C ends what it does in one piece, too. Calls `look` meanwhile."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: render.rows(connection, query, parameters))
        try:
            while not _finished(running):
                look()
        except KeyboardInterrupt:
            _end(connection, running)
            raise
        return running.result()


def _end(connection: duckdb.DuckDBPyConnection, running: concurrent.futures.Future) -> None:
    """A statement that has not begun yet forgets an interrupt, and another Ctrl-C leaves none running."""
    finished = False
    while not finished:
        try:
            connection.interrupt()
            finished = _finished(running)
        except KeyboardInterrupt:
            continue


def _finished(running: concurrent.futures.Future) -> bool:
    concurrent.futures.wait([running], timeout=_POLL_SECONDS)
    return running.done()
