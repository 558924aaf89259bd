"""Statements of a user who is not root."""

from __future__ import annotations

import json

from support import CONNECT, run_python

#: Connected as root, since not everybody may read where the extension is installed.
AS_NOBODY = f"""
import json
{CONNECT}
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
def run(statement):
    try:
        return connection.execute(statement).fetchall()
    except duckdb.Error as error:
        return f"{{type(error).__name__}}: {{error}}"
"""

RUN_ALL = "print(json.dumps([run(statement) for statement in json.loads(sys.argv[1])]))"


def run_as_nobody(*statements: str) -> list:
    """What each has as its result, or says."""
    return json.loads(run_python(RUN_ALL, json.dumps(statements), before=AS_NOBODY))
