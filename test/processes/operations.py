"""What a process does with a target, and what it may expect while another process holds it.

A holder has a target for itself (EXCLUSIVE) or shares it (SHARED); an operation needs the same of it. From
these two words follows what each pair is expected to do; NEVER are operations that this kind of target always
refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from machine import call
from places import BACKING_FILE, OTHER_LOOPS, Place
from workers import Answer, Worker

NOTHING, SHARED, EXCLUSIVE, NEVER = "nothing", "shared", "exclusive", "never"
WORKS, REFUSED = "works", "refused"

#: What a message may tell the user to do.
ADVICE = (
    r"(?i)close|detach|read_only|release|wait|unmount|force|format|attach|remove|choose|leave out|"
    r"pass |use |run |give |stop|make one|look "
)
SIZE = 32 * 1024**2


@dataclass(frozen=True)
class Scratch:
    """Files of the tests' own, elsewhere: what is copied in, and where copies go."""

    source: Path
    folder: Path

    @property
    def stream(self) -> Path:
        """What nvme_send wrote of a snapshot y.duckdb@s of another volume."""
        return self.folder / "stream"

    @property
    def mount_point(self) -> Path:
        return self.folder / "mount_point"


@dataclass(frozen=True)
class Operation:
    name: str
    needs: str
    do: Callable[[Worker, Place, Scratch], Answer]
    #: The message is DuckDB's or a tool's.
    foreign: bool = False
    #: Whoever has the volume open for writing is asked, and answers unless it is busy.
    asks: bool = False

    def expected(self, held: str) -> str:
        if self.needs == NEVER:
            return REFUSED
        if held == NOTHING or (held == SHARED and self.needs == SHARED):
            return WORKS
        return REFUSED


def _sql(*statements: str) -> Callable[[Worker, Place, Scratch], Answer]:
    """In `statements`: {t} the target, {source} a file to copy in, {stream}, {out} where a copy goes."""

    def do(worker: Worker, place: Place, scratch: Scratch) -> Answer:
        paths = {"source": scratch.source, "stream": scratch.stream, "out": scratch.folder / "out.bin"}
        names = {"t": place.other, **paths}
        names["out"].unlink(missing_ok=True)  # it may be the copy of a volume, which no other copy replaces
        answer = worker.ask("run", statements=[statement.format(**names) for statement in statements])
        if not answer.ok:
            # Whatever of the statements was carried out.
            worker.ask("run", statements=["DETACH DATABASE IF EXISTS y"])
        return answer

    return do


def _mkfs(_: Worker, place: Place, __: Scratch) -> Answer:
    return _tool_answer(call("mkfs.ext4", "-q", "-F", place.other))


def _mount(_: Worker, place: Place, scratch: Scratch) -> Answer:
    scratch.mount_point.mkdir(exist_ok=True)
    result = call("mount", "-t", "ext4", place.other, scratch.mount_point)
    if result.returncode == 0:
        call("umount", scratch.mount_point)
    return _tool_answer(result)


def _tool_answer(result) -> Answer:
    return Answer(result.stdout, "" if result.returncode == 0 else result.stderr or "failed without a word")


_ATTACH = "ATTACH '{path}' AS y{options}"


def _attach(path: str, read_only: bool, query: str) -> Callable[[Worker, Place, Scratch], Answer]:
    options = " (READ_ONLY)" if read_only else ""
    return _sql(_ATTACH.format(path=path, options=options), query, "DETACH y")


_INSERT, _COUNT = "INSERT INTO y.t VALUES (-1)", "SELECT count(*) FROM y.t"

FORMAT = (
    Operation(
        "format --size", EXCLUSIVE, _sql(f"CALL nvme_format('{{t}}', size := '{SIZE}', force := true)")
    ),
    Operation("format", EXCLUSIVE, _sql("CALL nvme_format('{t}', force := true)")),
)
#: It says what that would meet, and does nothing.
OCCUPANTS = Operation("occupants", EXCLUSIVE, _sql("FROM nvme_occupants('{t}')"))
#: Through DuckDB's own file system.
COPY_OVER = Operation(
    "cp over it", EXCLUSIVE, _sql("CALL nvme_copy('{source}', '{t}', overwrite := true)"), foreign=True
)
COPY_AWAY = Operation(
    "cp of it", SHARED, _sql("CALL nvme_copy('{t}', '{out}', overwrite := true)"), foreign=True
)

#: On a volume.
ON_VOLUMES = (
    Operation("attach rw", EXCLUSIVE, _attach("nvme://{t}/x.duckdb", False, _INSERT)),
    Operation("attach ro", SHARED, _attach("nvme://{t}/x.duckdb", True, _COUNT)),
    Operation("check", SHARED, _sql("SELECT * FROM nvme_check('{t}')"), asks=True),
    Operation("check contents", SHARED, _sql("SELECT * FROM nvme_check('{t}', contents := true)"), asks=True),
    Operation("send", SHARED, _sql("CALL nvme_send('nvme://{t}/x.duckdb@latest', '{out}')"), asks=True),
    Operation(
        "receive",
        EXCLUSIVE,
        _sql(
            "CALL nvme_receive('{stream}', 'nvme://{t}/y.duckdb')",
            "CALL nvme_drop_snapshot('nvme://{t}/y.duckdb@s')",
            "CALL nvme_remove('nvme://{t}/y.duckdb')",
        ),
    ),
    Operation("repair", EXCLUSIVE, _sql("SELECT * FROM nvme_check('{t}', repair := true)")),
    Operation("grow", EXCLUSIVE, _sql("CALL nvme_grow('{t}')")),
    Operation(
        "mv",
        EXCLUSIVE,
        _sql(
            "CALL nvme_move('nvme://{t}/kept.bin', 'nvme://{t}/moved.bin')",
            "CALL nvme_move('nvme://{t}/moved.bin', 'nvme://{t}/kept.bin')",
        ),
        asks=True,
    ),
    Operation("glob", SHARED, _sql("SELECT 1 / count(*) FROM glob('nvme://{t}/k*.bin')"), asks=True),
    Operation("defragment", EXCLUSIVE, _sql("CALL nvme_defragment('nvme://{t}/kept.bin')")),
    # A regular file keeps the space that was reserved for it, unless it is told not to.
    Operation("trim", EXCLUSIVE, _sql("SET nvme_deallocate = 'on'", "CALL nvme_trim('{t}')")),
    Operation("cp in", EXCLUSIVE, _sql("CALL nvme_copy('{source}', 'nvme://{t}/in.bin', overwrite := true)")),
    Operation("cp out", SHARED, _sql("CALL nvme_copy('nvme://{t}/kept.bin', '{out}', overwrite := true)")),
    Operation("rm", EXCLUSIVE, _sql("CALL nvme_remove('nvme://{t}/spare.bin')"), asks=True),
    Operation("ls", SHARED, _sql("SELECT * FROM nvme_files('{t}')"), asks=True),
    Operation("info", SHARED, _sql("SELECT * FROM nvme_info('{t}')"), asks=True),
)
#: A volume is no DuckDB file, for DuckDB itself and for direct://.
STOCK_ON_VOLUMES = (
    Operation("stock rw", NEVER, _attach("{t}", False, _INSERT), foreign=True),
    Operation("stock ro", NEVER, _attach("{t}", True, _COUNT), foreign=True),
    Operation("direct rw", NEVER, _attach("direct://{t}", False, _INSERT), foreign=True),
    Operation("direct ro", NEVER, _attach("direct://{t}", True, _COUNT), foreign=True),
)
#: On a file of stock DuckDB.
ON_STOCK_FILES = (
    Operation("stock rw", EXCLUSIVE, _attach("{t}", False, _INSERT), foreign=True),
    Operation("stock ro", SHARED, _attach("{t}", True, _COUNT), foreign=True),
    Operation("direct rw", EXCLUSIVE, _attach("direct://{t}", False, _INSERT)),
    Operation("direct ro", SHARED, _attach("direct://{t}", True, _COUNT)),
)
#: It is no volume, so what works on volumes says that, and changes nothing.
VOLUMES_ON_STOCK_FILES = tuple(Operation(operation.name, NEVER, operation.do) for operation in ON_VOLUMES)
TOOLS = (
    Operation("mkfs", EXCLUSIVE, _mkfs, foreign=True),
    Operation("mount", NEVER, _mount, foreign=True),
)


def on_volume(place: Place, held: str) -> tuple[Operation, ...]:
    """In an order in which none that works spoils the next."""
    if place.part:
        none_there = tuple(Operation(o.name, NEVER, o.do) for o in ON_VOLUMES)
        return (*none_there, OCCUPANTS, FORMAT[1], *_tools(place, held))
    if place.other_is_device:
        sized = Operation(FORMAT[0].name, NEVER, FORMAT[0].do)
        return (*ON_VOLUMES, OCCUPANTS, sized, FORMAT[1], *_tools(place, held))
    copies = () if held == NOTHING else (COPY_OVER, COPY_AWAY)
    formats = (OCCUPANTS, *FORMAT)
    if place.way == BACKING_FILE:
        # Whatever is on the loop device would not know.
        formats = tuple(Operation(o.name, NEVER, o.do) for o in formats)
    return (*ON_VOLUMES, *STOCK_ON_VOLUMES, *copies, *formats)


def on_stock_file(place: Place, held: str) -> tuple[Operation, ...]:
    if place.other_is_device:
        size, plain = FORMAT
        return (*VOLUMES_ON_STOCK_FILES, OCCUPANTS, Operation(size.name, NEVER, size.do), plain, TOOLS[1])
    copies = () if held == NOTHING else (COPY_OVER, COPY_AWAY)
    return (*ON_STOCK_FILES, *VOLUMES_ON_STOCK_FILES, *copies, OCCUPANTS, *FORMAT)


def _tools(place: Place, held: str) -> tuple[Operation, ...]:
    """Nothing keeps a tool away from a device that is only read, or of which only the file is held."""
    return TOOLS if held == EXCLUSIVE and place.way not in OTHER_LOOPS else ()
