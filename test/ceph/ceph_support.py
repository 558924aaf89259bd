"""Shared by the Ceph tests: users, connections, and helpers for queries."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import duckdb
import rawduck
from rawduck.ceph.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(os.environ.get("RAWDUCK_DUCKDB_SOURCE", ROOT / "build/duckdb-2.0.0"))

CHILD_SECONDS = 120


@dataclass(frozen=True)
class User:
    """A Ceph user and the file with its key."""

    name: str
    keyring: Path | str = ""


ADMIN = User("admin")


def secret(cluster: Cluster, user: User, *more: str) -> str:
    """A CREATE SECRET statement for a cluster and a user; `more`: further clauses."""
    keyring = user.keyring or cluster.keyring
    clauses = [f"CONF '{cluster.conf}'", f"USER '{user.name}'", f"KEYRING '{keyring}'", *more]
    return f"CREATE OR REPLACE SECRET ceph (TYPE rados, {', '.join(clauses)})"


def connect(cluster: Cluster, user: User = ADMIN) -> duckdb.DuckDBPyConnection:
    connection = rawduck.connect(ceph=True)
    connection.execute(secret(cluster, user))
    return connection


def one(connection: duckdb.DuckDBPyConnection, query: str, *parameters):
    """The single value of a query."""
    return connection.execute(query, list(parameters)).fetchone()[0]


def names(connection: duckdb.DuckDBPyConnection, pattern: str) -> list[str]:
    rows = connection.execute("SELECT file FROM glob(?) ORDER BY file", [pattern]).fetchall()
    return [row[0] for row in rows]


def requests(connection: duckdb.DuckDBPyConnection, operation: str, column: str = "requests") -> int:
    """A counter of rados_stats() for an operation, summed over all pools."""
    query = f"SELECT coalesce(sum({column}), 0)::BIGINT FROM rados_stats() WHERE operation = ?"
    return one(connection, query, operation)


def rados(cluster: Cluster, *arguments: str, data: bytes = b"") -> bytes:
    """Runs Ceph's own `rados` command, which does not use rawduck."""
    command = ["rados", "--conf", str(cluster.conf), *arguments]
    return subprocess.run(command, input=data, capture_output=True, check=True, timeout=60).stdout


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Runs Python code in a new process. Returns its standard output."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CHILD_SECONDS,
        check=False,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()
