"""One batch of comparisons in a process of its own: the process may crash, and its seed does it again.

    python -m differential.batch CONF KEYRING SEED all FIRST END    queries FIRST to END - 1, replaced objects
    python -m differential.batch CONF KEYRING SEED one N N+1        query N
    python -m differential.batch CONF KEYRING SEED itself N END     reading compared with itself
    python -m differential.batch CONF KEYRING SEED known N END      cases N to END - 1 of known.py
    python -m differential.batch CONF KEYRING SEED script N MODE    writes the script of a query, runs nothing

Writes one line of JSON per event.
"""

from __future__ import annotations

import faulthandler
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from ceph_support import ADMIN, connect
from class_protocol import Pool

from differential import replaced
from differential.client import TABLES, Client
from differential.judging import errors, shrink
from differential.judging.comparison import Outcome
from differential.judging.coverage import Coverage
from differential.judging.script import script
from differential.known import CASES
from differential.making.queries import Maker
from differential.making.settings import random_settings
from differential.making.tables import POOL, POOLS, Store, Table, random_table
from differential.making.tree import Query, Several

#: Queries with the same settings and number of threads.
GROUP = 20
#: Chances per query besides 'always', which every query is compared with.
MODES = {"shared": 0.6, "filters": 0.3, "auto": 0.3}
STOCK = 0.05
HANG_SECONDS = 90
#: The exit status after an internal error.
RESTART = 3
#: Differences that are made smaller, per batch.
SHRINK_MAX = 3


class Batch:
    def __init__(self, conf: str, keyring: str, seed: str) -> None:
        self.seed = seed
        self.pools = {name: Pool(Path(conf), Path(keyring), name) for name in POOLS}
        self.client = Client(connect(_cluster(conf, keyring), ADMIN))
        # Of its own, because settings change what casts and comparisons in the tables' values mean.
        self.writer = connect(_cluster(conf, keyring), ADMIN)
        self.coverage = Coverage(self.client.con.cursor())
        self.folder = tempfile.TemporaryDirectory(prefix="rawduck-differential-")
        self.store = Store(self.writer, self.pools, f"differential/{seed}", Path(self.folder.name))
        self.counts: Counter[str] = Counter()
        self.tables: list[Table] = []
        self.shrunk = 0
        self.itself = False  # reading is compared with itself, with another number of threads

    @property
    def data_prefix(self) -> str:
        return self.store.prefix.replace(POOL, POOLS[0])

    def prepare(self) -> None:
        rng = random.Random(f"{self.seed} tables")
        con = self.client.con
        self.tables = [
            self.store.write(random_table(rng, name, rows_max)) for name, rows_max in TABLES.items()
        ]
        con.execute("CREATE SCHEMA stock")
        self.show(self.tables)

    def show(self, tables: list[Table]) -> None:
        """Makes views of the tables."""
        for schema, place in (("main", self.store.prefix), ("stock", self.store.files)):
            self.client.con.execute(f"USE memory.{schema}")
            for table in tables:
                self.client.con.execute(table.view(place))
        self.client.con.execute("USE memory.main")

    def query(self, number: int) -> Query:
        """Makes a query, and applies its settings."""
        group = random.Random(f"{self.seed} settings {number // GROUP}")
        self.client.configure(random_settings(group), group.choice((1, 4)))
        return Maker(random.Random(f"{self.seed} query {number}"), self.tables).query()

    def compare_known(self, number: int) -> None:
        """A case of known.py, with one thread and with several."""
        case = CASES[number]
        prefix = self.store.prefix.replace(POOL, case.pool)
        for place, select in enumerate(case.objects):
            path = f"known{number}/{place}.parquet"
            self.writer.execute(f"COPY ({select}) TO '{prefix}/{path}' (FORMAT parquet)")
            self.store.written.add((case.pool, path))
        source = f"read_parquet('{prefix}/known{number}/*')"
        self.client.con.execute(f"CREATE OR REPLACE VIEW memory.main.t AS FROM {source}")
        query = Query(case.query, items=Several("", ", ", []))
        for threads in (1, 4):
            self.client.configure(case.settings, threads)
            self.report_query(number, case.query)
            read = self.client.run(query, "never")
            assert (read.rows is None) == case.fails, f"{case.name}: {read}"
            for mode in ("always", "filters", "auto"):
                text, _, other = self.client.differs(query, mode, read)
                self.counts["comparisons"] += 1
                self.counts["pushed"] += self.coverage.count({"known cases"}, mode)
                if text:
                    self.found(
                        number, mode, f"{case.name}: {text}", case.query, read=str(read), other=str(other)
                    )
        self.flush()

    def modes(self, number: int) -> list[str]:
        """What a query is compared with."""
        rng = random.Random(f"{self.seed} modes {number}")
        modes = ["always", *(mode for mode, chance in MODES.items() if rng.random() < chance)]
        if self.itself:
            modes = ["never"]
        if rng.random() < STOCK and not any("filename" in table.options for table in self.tables):
            modes.append("stock")
        return modes

    def compare(self, number: int) -> None:
        query = self.query(number)
        modes = self.modes(number)
        self.report_query(number, "; ".join(query.statements()))
        read = self.client.run(query, "never")
        self.counts["read fails"] += read.rows is None
        if self.client.invalid:
            # A defect of DuckDB, which fails to plan some LIMITs of Parquet files, on local files, too.
            self.counts["internal errors when read"] += 1
            modes = []
        else:
            self.coverage.skip()
        for mode in modes:
            if self.itself:
                self.client.configure(self.client.settings, 5 - self.client.threads)
            text, _, other = self.client.differs(query, mode, read)
            self.counts["comparisons"] += 1
            self.counts["pushed"] += self.coverage.count(query.features, mode)
            if text:
                self.difference(number, query, mode, text, read, other)
        if number % GROUP == 0 or self.client.invalid:
            self.flush()
        if self.client.invalid:
            sys.exit(RESTART)

    def difference(
        self, number: int, query: Query, mode: str, text: str, read: Outcome, other: Outcome
    ) -> None:
        if errors.may_differ(self.client, query, mode, read, other):
            self.counts["errors that differ"] += 1
            return
        found = self.found(
            number, mode, text, "; ".join(query.statements()), read=str(read), other=str(other)
        )
        self.shrunk += 1
        if self.shrunk <= SHRINK_MAX:
            query, tables = shrink.shrink(self, query, mode, text)
            again, read, other = self.client.differs(query, mode)
            more = {
                "sql": "; ".join(query.statements()),
                "read": str(read),
                "text": again or text,
                "other": str(other),
            }
            report(**found | more | {"event": "smaller", "script": script(self, query, tables, mode)})
            self.show(self.tables)
        self.coverage.skip()

    def found(self, number: int | str, mode: str, text: str, sql: str, **more: str) -> dict:
        """Reports a difference."""
        self.counts["differences"] += 1
        found = {"event": "difference", "seed": self.seed, "number": number, "mode": mode, "text": text}
        found |= {"sql": sql, "settings": self.client.settings, "threads": self.client.threads, **more}
        report(**found)
        return found

    def report_query(self, number: int | str, sql: str) -> None:
        """What runs next, for the case that the process ends in it or hangs."""
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        report(event="query", number=number, sql=sql)

    def flush(self) -> None:
        """Reports what was counted since the last time."""
        report(event="counts", counts=self.counts, coverage=self.coverage.as_dict())
        self.counts.clear()
        self.coverage.clear()

    def finish(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self.flush()
        self.store.remove()
        self.client.con.close()
        self.writer.close()
        for pool in self.pools.values():
            pool.close()
        self.folder.cleanup()


def _cluster(conf: str, keyring: str):
    """As much of a cluster as a connection needs."""
    from rawduck.ceph.cluster import Cluster

    cluster = Cluster(Path(conf).parent)
    assert (str(cluster.conf), str(cluster.keyring)) == (conf, keyring)
    return cluster


def report(**event: object) -> None:
    print(json.dumps(event), flush=True)


def main() -> None:
    conf, keyring, seed, what, *arguments = sys.argv[1:]
    batch = Batch(conf, keyring, seed)
    first, end = int(arguments[0]), arguments[-1]
    if what == "known":
        for number in range(first, int(end)):
            batch.compare_known(number)
        batch.finish()
        return
    batch.prepare()
    batch.itself = what == "itself"
    if what == "script":
        report(event="smaller", script=script(batch, batch.query(first), batch.tables, end))
    else:
        for number in range(first, int(end)):
            batch.compare(number)
        if what == "all":
            replaced.compare(batch)
    batch.finish()


if __name__ == "__main__":
    main()
