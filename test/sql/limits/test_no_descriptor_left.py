"""At the limit of open files: errors that name it, nothing that passes for missing, and nothing lost."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack

import pytest
import rawduck
from support import loop_device, make_target, run_python

#: More than all of the statements need.
ENOUGH = 60

#: With no descriptor left, with one, two and so on until nothing fails: what each statement says, and what is
#: there afterwards.
STATEMENTS_AT_EACH_LIMIT = """
    import json, resource
    path, folder, enough = sys.argv[1], sys.argv[2], int(sys.argv[3])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    connection.close()
    errors = []

    def connect():
        connected = rawduck.connect()
        connected.execute("SET enable_progress_bar = false; SET threads = 2; SELECT 1")
        return connected

    def limit(left):
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + left, hard))

    def works(con, statement):
        try:
            con.execute(statement).fetchall()
            return True
        except duckdb.Error as error:
            errors.append((statement, f"{type(error).__name__}: {error}"))
            return False

    def use_database(con, left):
        committed = set()
        if works(con, f"ATTACH '{path}' AS d"):
            for value in (left, left + 1000):
                if works(con, f"INSERT INTO d.t VALUES ({value})"):
                    committed.add(value)
                works(con, "CHECKPOINT d")
            works(con, "SELECT count(*) FROM d.t")
            works(con, "DETACH d")
        return committed

    def use_file(con, left):
        file = f"{folder}/c{left}.csv"
        for _ in ("a new one", "one that is replaced"):
            if works(con, f"COPY (FROM range(10)) TO '{file}'"):
                works(con, f"FROM '{file}'")

    with connect() as con:
        con.execute(f"ATTACH '{path}' AS d; CREATE TABLE d.t (i BIGINT)")
    committed, complete = set(), 0
    for left in range(enough):
        before = len(errors)
        with connect() as con:
            limit(left)
            committed |= use_database(con, left)
            use_file(con, left)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with connect() as con:
            con.execute(f"ATTACH '{path}' AS d")
            there = {row[0] for row in con.execute("FROM d.t").fetchall()}
        assert committed <= there, (left, sorted(committed - there), errors[before:])
        complete += len(errors) == before
        if complete == 2:
            break
    print(json.dumps({"errors": errors, "complete": complete}))
"""

NOT_AN_ANSWER = re.compile(
    r"does not exist|no such file|not a (rawduck )?volume|no volume|missing|not found|no files found|FATAL",
    re.IGNORECASE,
)


def stripe(con, members):
    size = ", size := '64M'" if members[0].endswith(".rawduck") else ""
    con.execute(f"CALL nvme_format('{members[0]}', stripe_with := {members[1:]}{size})")
    return members[0]


@pytest.fixture(params=["direct", "file", "loop", "stripe of files", "stripe of devices"])
def place(request, tmp_path):
    """The path of a database, and a folder for other files."""
    with ExitStack() as stack, rawduck.connect() as con:
        if request.param == "direct":
            yield f"direct://{tmp_path}/x.duckdb", f"direct://{tmp_path}"
            return
        if request.param in ("file", "loop"):
            target = stack.enter_context(make_target(f"{request.param}-4096", tmp_path, "128M")).name
        elif request.param == "stripe of files":
            target = stripe(con, [f"{tmp_path}/a.rawduck", f"{tmp_path}/b.rawduck"])
        else:
            images = [tmp_path / f"{number}.img" for number in range(2)]
            target = stripe(con, [stack.enter_context(loop_device(image, 4096, "64M")) for image in images])
        con.close()
        yield f"nvme://{target}/x.duckdb", f"nvme://{target}"


def test_the_limit_is_named_and_nothing_is_lost(place):
    found = json.loads(run_python(STATEMENTS_AT_EACH_LIMIT, *place, str(ENOUGH)))
    for statement, error in found["errors"]:
        assert "ulimit -n" in error, (statement, error)
        assert not NOT_AN_ANSWER.search(error), (statement, error)
    assert found["errors"], "the limit was never reached"
    assert found["complete"], "not even where there were enough"


#: With each number of descriptors, a function that makes files: what it says, and which files are there then.
FILES_AT_EACH_LIMIT = """
    import json, resource
    folder, statement = sys.argv[1], sys.argv[2]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    connection.close()
    results = []
    while not results or (results[-1][0] and len(results) < 60):
        con = rawduck.connect()
        con.execute("SET enable_progress_bar = false; SET threads = 2; SELECT 1")
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + len(results), hard))
        try:
            con.execute(statement).fetchall()
            error = ""
        except duckdb.Error as failure:
            error = f"{type(failure).__name__}: {failure}"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        con.close()
        results.append((error, sorted(os.listdir(folder))))
    print(json.dumps(results))
"""


@pytest.mark.parametrize(
    ("statement", "made"),
    [
        ("CALL nvme_format('{new}/x', size := '32M')", ["x"]),
        ("CALL nvme_format('{new}/x', stripe_with := ['{new}/y'], size := '32M')", ["x", "y"]),
        ("CALL nvme_copy('{old}/source', 'direct://{new}/x')", ["x"]),
        ("CALL nvme_copy('{old}/source', '{new}/x')", ["x"]),
        ("COPY (FROM range(10)) TO 'direct://{new}/x' (FORMAT csv)", ["x"]),
    ],
)
def test_what_could_not_be_made_leaves_nothing(tmp_path, statement, made):
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    (tmp_path / "old" / "source").write_text("a file")
    statement = statement.format(old=tmp_path / "old", new=tmp_path / "new")
    *refused, finished = json.loads(run_python(FILES_AT_EACH_LIMIT, str(tmp_path / "new"), statement))
    assert refused, "the limit was never reached"
    assert finished == ["", made]
    for error, files in refused:
        assert "FATAL" not in error, error
        assert "ulimit -n" in error or "Too many open files" in error, error
        assert files == [], error
