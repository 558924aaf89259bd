"""Other processes that hold what a test wants to use, and containers to run them in."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager

import pytest
from support import start_python

TOOLS = "/usr/sbin:/sbin:/usr/bin:/bin"

HOLD = """
connection.execute(f"ATTACH '{sys.argv[1]}' AS x")
connection.execute("CREATE OR REPLACE TABLE x.t AS SELECT range AS i FROM range(1000)")
print("ready", flush=True)
sys.stdin.readline()
connection.execute("INSERT INTO x.t VALUES (-1)")
print(connection.execute("SELECT count(*) FROM x.t").fetchone()[0], flush=True)
connection.execute("DETACH x")
"""


@contextmanager
def held(path: str):
    """Another process has the database attached for writing. Afterwards it commits once more and detaches."""
    with start_python(HOLD, path) as child:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        yield child
        output, errors = child.communicate("\n", timeout=60)
        assert (child.returncode, output) == (0, "1001\n"), errors


WRITE_ONCE = """
try:
    connection.execute(f"ATTACH 'nvme://{sys.argv[1]}/x.duckdb' AS x")
    connection.execute("CREATE TABLE x.more AS SELECT 1 AS i")
    connection.execute("DETACH x")
    print("written")
except duckdb.IOException as error:
    print(error)
"""


def fill(path: str) -> None:
    with held(path):
        pass


def unshared(options: str, preparation: str) -> tuple[str, ...]:
    """A command that starts another one in namespaces of its own, as a container does."""
    command = [shutil.which("unshare", path=TOOLS), *options.split(), "sh", "-c"]
    if subprocess.run([*command, preparation], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"no namespaces here: unshare {options}")
    return (*command, f'{preparation} && exec "$0" "$@"')
