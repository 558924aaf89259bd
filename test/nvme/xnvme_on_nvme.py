"""Controllers that libxnvme's own driver has, `xnvme:spdk`, where the installed one was built with it: SQL,
who else may have the controller, children, and writers that are killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import kills_on_nvme
import rawduck
from faults_on_nvme import failure

ENGINES = ("xnvme:spdk",)
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
HUGE_PAGE_FOLDER = Path("/dev/hugepages")
HUGE_PAGES_WANTED = 128  # of 2 MiB; 64 are what an engine asks for
HUGE_PAGES_TOO_FEW = 8


def check_all(results, plan: dict, target: str, tpch: Callable) -> None:
    """All that needs a process of its own comes first: children of one that used such an engine cannot."""
    present = []
    with huge_pages():
        for engine in ENGINES:
            obstacle = in_child(lambda e=engine: attach(e, target))
            if "is not available" in obstacle:
                results.skip(f"{engine} on {target}", obstacle)
            else:
                present.append(engine)
        for engine in present:
            check_processes(results, plan, target, engine)
        for engine in present:
            tpch([engine], plan["modes"])


def check_processes(results, plan: dict, target: str, engine: str) -> None:
    def check(name: str, body: Callable[[], None]) -> None:
        results.check(f"{engine}: {name}", body)

    check("without huge pages it is refused", lambda: too_few_huge_pages(engine, target))
    check("one process has the controller", lambda: one_owner(engine, target))
    check("a child of its owner neither uses nor keeps it", lambda: children(engine, target))
    check("writers are killed", lambda: kills_on_nvme.kills(target, plan["kills"], engine))


@contextlib.contextmanager
def huge_pages() -> Iterator[None]:
    before = HUGE_PAGES.read_text()
    HUGE_PAGE_FOLDER.mkdir(exist_ok=True)
    if not HUGE_PAGE_FOLDER.is_mount():
        os.system(f"mount -t hugetlbfs none {HUGE_PAGE_FOLDER}")
    HUGE_PAGES.write_text(str(HUGE_PAGES_WANTED))
    try:
        yield
    finally:
        HUGE_PAGES.write_text(before)


def attach(engine: str, target: str, database: str = "mine") -> duckdb.DuckDBPyConnection:
    connection = rawduck.connect()
    connection.execute(f"SET nvme_engine = '{engine}'")
    connection.execute(f"ATTACH 'nvme://{target}/{database}.duckdb' AS x")
    return connection


def in_child(body: Callable[[], object]) -> str:
    """What it fails with, in a process of its own; empty: it did not."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        try:
            body()
        except BaseException as error:
            os.write(tells, str(error).encode())
        os._exit(0)
    os.close(tells)
    with os.fdopen(told) as text:
        message = text.read()
    os.waitpid(child, 0)
    return message


@contextlib.contextmanager
def owner(engine: str, target: str, then: Callable[[], object] = lambda: None) -> Iterator[int]:
    """A process that has it, until it is killed."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            connection = attach(engine, target)
            connection.execute("CREATE OR REPLACE TABLE x.t AS SELECT 42 AS v")
            then()
            os.write(tells, b"1")
            time.sleep(1000)
        os._exit(1)
    os.close(tells)
    try:
        assert os.read(told, 1) == b"1", "the owner could not open it"
        yield child
    finally:
        os.close(told)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def look(engine: str, target: str) -> None:
    assert attach(engine, target).execute("FROM x.t").fetchall() == [(42,)]


def too_few_huge_pages(engine: str, target: str) -> None:
    HUGE_PAGES.write_text(str(HUGE_PAGES_TOO_FEW))
    try:
        message = in_child(lambda: attach(engine, target))
    finally:
        HUGE_PAGES.write_text(str(HUGE_PAGES_WANTED))
    assert "MiB of huge pages" in message, message
    assert str(HUGE_PAGES) in message, message


def one_owner(engine: str, target: str) -> None:
    with rawduck.connect() as connection:
        connection.execute("CALL nvme_format(?, force := true)", [target])
    with owner(engine, target) as process:
        for other in (engine, "vfio"):
            message = in_child(lambda e=other: attach(e if e != "vfio" else "auto", target))
            assert f"process {process} " in message, message
            assert "one process at a time" in message, message
    for other in (engine, "auto"):
        message = in_child(lambda e=other: look(e, target))
        assert message == "", message


def children(engine: str, target: str) -> None:
    told, tells = os.pipe()

    def fork_and_tell() -> None:
        child = os.fork()
        if child == 0:
            with rawduck.connect() as connection:
                connection.execute(f"SET nvme_engine = '{engine}'")
                message = failure(connection, f"ATTACH 'nvme://{target}/other.duckdb' AS y")
            os.write(tells, f"{os.getpid()} {message}".encode())
            time.sleep(1000)
            os._exit(1)

    with owner(engine, target, fork_and_tell):
        process, _, message = os.read(told, 4096).decode().partition(" ")
    try:
        assert "before fork()" in message, message
        message = in_child(lambda: look(engine, target))
        assert message == "", message
    finally:
        os.kill(int(process), signal.SIGKILL)
