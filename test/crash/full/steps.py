"""What may happen in a history, one step after the other, until the volume is full and beyond."""

from __future__ import annotations

import shadow as sql
from history import FILLS, FULL_LIVES_MAX, INSERT_BYTES_MAX, PAYLOADS, ROWS, TABLES_MAX, Database, History
from life import Broken


def changes_of(history: History, name: str) -> list[str]:
    """Statements for one database: one commit, or a checkpoint."""
    rng = history.rng
    tables = [f"{name}.{table}" for table in history.shadow.tables(name)]
    if not tables or (len(tables) < TABLES_MAX and rng.random() < 0.2):
        table = f"{name}.{history.next_name('t')}"
        return ["BEGIN", sql.create(table), insert_into(history, table), "COMMIT"]
    table = rng.choice(tables)
    every = rng.choice((1, 2, 7, 50))
    kind = rng.choices(("insert", "update", "delete", "checkpoint", "several", "drop"), (9, 3, 2, 3, 2, 1))[0]
    if kind == "update":
        return [sql.update(table, every, rng.randrange(every))]
    if kind == "delete":
        return [sql.delete(table, every, rng.randrange(every))]
    if kind == "checkpoint":
        return [f"CHECKPOINT {name}"]
    if kind == "drop":
        return [f"DROP TABLE {table}"]
    if kind == "several":
        chosen = rng.sample(tables, min(2, len(tables)))
        return ["BEGIN", *(insert_into(history, other) for other in chosen), "COMMIT"]
    return [insert_into(history, table)]


def insert_into(history: History, table: str) -> str:
    payload = history.rng.choice(PAYLOADS)
    rows = history.rng.choice(ROWS)
    each = 96 * -payload if payload < 0 else payload // 4  # what cannot be compressed takes long to make
    rows = max(1, min(rows, INSERT_BYTES_MAX // (each + 1)))
    first, history.keys = history.keys, history.keys + rows
    return sql.insert(table, first, first + rows, payload)


def change_some(history: History) -> None:
    """One to three databases at the same time; sometimes the process is killed meanwhile."""
    rng = history.rng
    chosen = rng.sample(list(history.databases), min(rng.choice((1, 1, 1, 2, 3)), len(history.databases)))
    changes = {name: changes_of(history, name) for name in chosen if history.attach(name)}
    if not changes:
        return
    kill = rng.random() < 0.08
    history.change(changes, rng.choice((0.002, 0.02, 0.1, 0.3)) if kill else None)


def fill(history: History) -> None:
    """Ever smaller commits until not even the smallest is possible."""
    name = history.rng.choice(list(history.databases))
    tables = history.shadow.tables(name)
    if not tables or not history.attach(name):
        return
    table = f"{name}.{tables[0]}"
    for size in FILLS:
        for _ in range(60):
            before = history.counts["refused"]
            history.keys += 1
            history.change({name: [sql.insert(table, history.keys - 1, history.keys, size)]})
            if history.life is None:
                return
            if history.counts["refused"] > before:
                break


def make_snapshot(history: History) -> None:
    of = history.rng.choice(list(history.databases))
    if not history.attach(of):
        return
    name = history.next_name("s")
    path = f"{history.database_path(of)}@{name}"
    call = f"CALL nvme_snapshot('{history.database_path(of)}', '{name}')"
    # A database of which nothing is durable yet has none.
    if one(history, call, name, "snapshot", ("no such", "durable")):
        history.snapshots[name] = path
        history.shadow.copy(name, of)


def make_clone(history: History) -> None:
    rng = history.rng
    if rng.random() < 0.5 and history.snapshots:
        of, path = rng.choice(list(history.snapshots.items()))
    else:
        of = rng.choice(list(history.databases))
        if not history.attach(of):
            return
        path = history.database_path(of)
    name = history.next_name("c")
    call = f"CALL nvme_clone('{path}', '{history.database_path(name)}')"
    if one(history, call, name, "database", ("no such", "durable")):
        history.databases[name] = Database(name, clone=True, made=True)
        history.shadow.copy(name, of)


def make_file(history: History) -> None:
    name = history.next_name("f") + ".csv"
    if history.files and history.rng.random() < 0.5:
        of, rows = history.rng.choice(list(history.files.items()))
        call = f"CALL nvme_copy('{history.path(of)}', '{history.path(name)}')"
    else:
        rows = history.rng.choice((10, 2_000, 60_000))
        call = f"COPY (SELECT k, payload(k, 0, -2) AS p FROM range({rows}) r(k)) TO '{history.path(name)}'"
    if one(history, call, name, "file"):
        history.files[name] = rows


def one(history: History, call: str, name: str, kind: str, may_fail: tuple[str, ...] = ()) -> bool:
    return history.judge(history.life.try_one(call), call, may_fail)


def must(history: History, call: str) -> None:
    """Removals succeed, however full the volume is."""
    answer = history.life.try_one(call)
    if not history.judge(answer, call):
        raise Broken(f"stuck: {call}: {answer.error}")


def remove_something(history: History) -> None:
    rng = history.rng
    clones = [name for name, database in history.databases.items() if database.clone]
    if history.snapshots and rng.random() < 0.5:
        drop_snapshot(history, rng.choice(list(history.snapshots)))
    elif history.files and rng.random() < 0.5:
        remove_file(history, rng.choice(list(history.files)))
    elif clones:
        remove_database(history, rng.choice(clones))


def drop_snapshot(history: History, name: str) -> None:
    must(history, f"CALL nvme_drop_snapshot('{history.snapshots[name]}')")
    del history.snapshots[name]
    history.shadow.remove(name)


def remove_file(history: History, name: str) -> None:
    must(history, f"CALL nvme_remove('{history.path(name)}')")
    del history.files[name]


def remove_database(history: History, name: str) -> None:
    if history.databases[name].attached:
        detach(history, name)
    must(history, f"CALL nvme_remove('{history.database_path(name)}')")
    del history.databases[name]
    history.shadow.remove(name)


def detach_one(history: History) -> None:
    attached = [name for name, database in history.databases.items() if database.attached]
    if attached:
        detach(history, history.rng.choice(attached))


def detach(history: History, name: str) -> None:
    """Also where the checkpoint that DuckDB makes then is refused: what it was to write stays in the log."""
    history.judge(history.life.try_one(f"DETACH {name}"), f"DETACH {name}", ("Detached database",))
    history.databases[name].attached = False


def spill(history: History) -> None:
    query = """SELECT sum(n) FROM (SELECT row_number() OVER (ORDER BY s) AS n
        FROM (SELECT md5(range::VARCHAR) AS s FROM range(400000)))"""
    call = ["SET memory_limit = '60MB'", query]
    history.judge(history.life.try_one(*call), "spill", ("Out of Memory", "OutOfMemory"))
    history.life.tell(["SET memory_limit = '2GB'"])


def defragment(history: History) -> None:
    name = history.rng.choice(list(history.databases))
    if not history.attach(name):
        return
    call = f"CALL nvme_defragment('{history.database_path(name)}')"
    history.judge(history.life.try_one(call), call, ("no such",))


STEPS = {
    change_some: 30,
    fill: 2,
    make_snapshot: 3,
    make_clone: 2,
    make_file: 2,
    remove_something: 3,
    detach_one: 1,
    spill: 1,
    defragment: 1,
}


def live(history: History) -> None:
    """Processes one after the other, until the volume was full in as many of them as it may be."""
    rng = history.rng
    full_lives = 0
    while full_lives < min(FULL_LIVES_MAX, history.shape.lives):
        refused = history.counts["refused"]
        history.begin_life()
        history.settle()
        for step in range(history.shape.steps):
            last = step == history.shape.steps - 1
            chosen = fill if last else rng.choices(list(STEPS), list(STEPS.values()))[0]
            chosen(history)
            if history.life is None:
                break
        if history.life and rng.random() < 0.5:
            history.kill_life()
        history.end_life()
        full_lives += history.counts["refused"] > refused
