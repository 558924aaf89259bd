"""A program that shows a difference without the fuzzer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from differential.making.settings import set_all
from differential.making.tables import POOLS, Table
from differential.making.tree import Query

if TYPE_CHECKING:
    from differential.batch import Batch

TEMPLATE = '''\
"""{title}

    rawduck ceph up --osds 3 --pool data{coded}
    python this_file.py build/ceph/ceph.conf
"""

import sys
import tempfile
from pathlib import Path

import rawduck

con = rawduck.connect(ceph=True)
con.execute(f"CREATE SECRET (TYPE rados, CONF '{{sys.argv[1]}}')")
OBJECTS = [
{objects}
]
for path, select, options in OBJECTS:
    con.execute(f"COPY ({{select}}) TO '{{path}}' ({{options}})")
for statement in [
{statements}
]:
    con.execute(statement)
for mode in ("never", "{mode}"):
    con.execute(f"SET rados_offload = '{{mode}}'")
    try:
        for statement in [
{query}
        ]:
            con.execute(statement)
        print(mode, con.description, con.fetchall())
    except Exception as error:
        print(mode, type(error).__name__, error)
'''


CODED = """
    ceph --conf build/ceph/ceph.conf osd pool create coded 16 16 erasure"""


def script(batch: Batch, query: Query, tables: list[Table], mode: str) -> str:
    text = query.sql()
    used = [table for table in tables if f" {table.name}" in text]
    objects = [
        (an_object.at(batch.store.prefix), table.select(an_object),
         f"FORMAT parquet, ROW_GROUP_SIZE {an_object.row_group_rows}, CODEC '{an_object.codec}'")
        for table in used
        for an_object in table.objects
    ]  # fmt: skip
    statements = [table.view(batch.store.prefix) for table in used]
    statements += [*set_all(batch.client.settings), f"SET threads = {batch.client.threads}"]
    return TEMPLATE.format(
        title=f"Batch {batch.seed}: rados_offload = '{mode}' and 'never' differ.",
        coded=CODED
        if any(an_object.pool != POOLS[0] for table in used for an_object in table.objects)
        else "",
        objects="\n".join(f"    {item!r}," for item in objects),
        statements="\n".join(f"    {item!r}," for item in statements),
        query="\n".join(f"            {item!r}," for item in query.statements()),
        mode="never" if mode == "stock" else mode,
    )
