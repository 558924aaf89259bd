"""The end of a history: everything is compared, every table dropped, and the space must be there again."""

from __future__ import annotations

from history import History
from life import Broken
from steps import drop_snapshot, remove_database, remove_file

#: An empty database has headers and some blocks of metadata.
EMPTY_DATABASE_BYTES = 1024**2
#: Metadata keeps so much more than that of a new volume: zones of 1 MiB in which some of its pages still lie.
METADATA_BYTES = 2 * 1024**2


def compare_all(history: History) -> None:
    for name in history.rng.sample(list(history.databases), len(history.databases)):
        if not history.attach(name):  # it was never there
            del history.databases[name]
            history.shadow.remove(name)
        else:
            history.compare(name, [], payload=True)
    for name, path in history.snapshots.items():
        history.life.tell([f"ATTACH '{path}' AS {name} (READ_ONLY)"])
        history.compare(name, [], payload=True)
        history.life.tell([f"DETACH {name}"])
    for name, rows in history.files.items():
        found = history.life.tell([f"SELECT count(*), sum(k)::BIGINT FROM read_csv('{history.path(name)}')"])
        if found[0] != [rows, rows * (rows - 1) // 2]:
            raise Broken(f"lost: {name} has {found}, not {rows} rows")


def empty(history: History, name: str) -> str:
    """Returns why not."""
    history.attach(name)
    for table in history.shadow.tables(name):
        drop = f"DROP TABLE {name}.{table}"
        answer = history.life.try_one(drop)
        history.note(f"{drop}: {answer.error}")
        if answer.error:
            history.databases[name].maybe = [drop] if answer.fatal else []
            return f"{drop}: {answer.error}"
        history.shadow.apply([drop])
    answer = history.life.try_one(f"CHECKPOINT {name}")
    history.note(f"checkpoint {name}: {answer.error}")
    return f"CHECKPOINT {name}: {answer.error}" if answer.error else ""


def empty_with_help(history: History, name: str) -> str:
    """As docs/devices.md says: where it is refused, all are detached, one is attached, and dropped first."""
    reason = empty(history, name)
    if not reason:
        return ""
    if "full" not in reason and "invalidated" not in reason:
        raise Broken(f"stuck: {reason}")
    history.counts["in a new process"] += 1
    history.begin_anew()
    reason = empty(history, name)
    if reason:
        history.begin_anew()  # nothing can be asked of a DuckDB that has given a database up
    return reason


def empty_all(history: History, names: list[str]) -> dict[str, str]:
    """In turns, as long as one of them succeeds. Returns which did not, and why."""
    left = dict.fromkeys(names, "")
    while left:
        before = len(left)
        for name in list(left):
            left[name] = empty_with_help(history, name)
            if not left[name]:
                del left[name]
        if len(left) == before:
            break
    return left


def make_room(history: History) -> None:
    """Everything that was there is given up, in a random order."""
    rng = history.rng
    names = rng.sample(list(history.databases), len(history.databases))
    others = [(drop_snapshot, name) for name in history.snapshots]
    others += [(remove_file, name) for name in history.files]
    rng.shuffle(others)
    snapshots_first = rng.random() < 0.5
    if snapshots_first:
        for remove, name in others:
            remove(history, name)
        others = []
    clones = [name for name in names if history.databases[name].clone]
    left = empty_all(history, names)
    if left and not history.snapshots and not clones:
        raise Broken(f"stuck: {left}")
    history.counts["waited for snapshots or clones"] += len(left)
    for remove, name in others:
        remove(history, name)
    if left:  # what they share goes with the last that has it
        for name in clones:
            remove_database(history, name)
        left = empty_all(history, [name for name in left if name not in clones])
    if left:
        raise Broken(f"stuck without snapshots and clones: {left}")


def large_ones(history: History) -> list[str]:
    query = f"SELECT name FROM nvme_files('{history.target}') WHERE allocated > {EMPTY_DATABASE_BYTES}"
    return [row[0].removesuffix(".duckdb") for row in history.life.tell([query])]


def shrink(history: History) -> None:
    """DuckDB cuts free blocks off at the end of the file only.

    Where the checkpoint has put its own there, the next one that has something to do finds a place before it.
    """
    for name in large_ones(history):
        history.attach(name)
        history.counts["shrunk by another checkpoint"] += 1
        history.life.tell([f"CREATE TABLE {name}.small (i INTEGER)", f"CHECKPOINT {name}"])
        history.life.tell([f"DROP TABLE {name}.small", f"CHECKPOINT {name}"])


def require_space(history: History, new: dict[str, int]) -> None:
    history.begin_anew()
    check(history)
    shrink(history)
    history.begin_anew()
    if large_ones(history):
        raise Broken(f"stuck: {large_ones(history)} are large, and empty")
    history.counts["KiB left"] += info(history)["used"] // 1024
    for name in list(history.databases):
        remove_database(history, name)
    require_as_new(history, new)
    history.end_life()


def require_as_new(history: History, new: dict[str, int]) -> None:
    history.begin_anew()
    check(history)
    found = info(history)
    if found["used"] != new["used"] or found["free"] < new["free"] - METADATA_BYTES:
        raise Broken(f"stuck: {found} of an empty volume, a new one has {new}")


def check(history: History) -> None:
    query = f"SELECT severity, what, detail FROM nvme_check('{history.target}') WHERE severity <> 'ok'"
    found = history.life.tell([query])
    if found:
        raise Broken(f"damaged: {found}")


def info(history: History) -> dict[str, int]:
    query = f"SELECT used, free, metadata_bytes FROM nvme_info('{history.target}')"
    return dict(zip(("used", "free", "metadata"), history.life.tell([query])[0], strict=True))


def finish(history: History, new: dict[str, int]) -> None:
    history.begin_life()
    history.settle()
    compare_all(history)
    if history.rng.random() < 0.5:
        history.begin_anew()
    make_room(history)
    require_space(history, new)
