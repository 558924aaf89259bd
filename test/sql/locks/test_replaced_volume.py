"""A volume whose file makes room for another volume's while a database on it is attached."""

import pytest
import rawduck
from rawduck.volumes import format_volume
from support import file_names, make_target, one, start_python

COMMIT = """
connection.execute(f"ATTACH '{sys.argv[1]}' AS x; CHECKPOINT x")
print("ready", flush=True)
sys.stdin.readline()
try:
    connection.execute("INSERT INTO x.t VALUES (2)")
    print("committed", flush=True)
except duckdb.Error as error:
    print(error, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("there", [True, False])
def test_no_log_is_written_to_the_other_one(tmp_path, con, there):
    """It would be lost with the process, since nobody looks for it there."""
    with make_target("file-4096", tmp_path, "64M") as target:
        other = tmp_path / "other"
        format_volume(con, str(other), size="64M")
        if there:
            rawduck.connect(f"nvme://{other}/x.duckdb").close()
        with rawduck.connect(target.path("x.duckdb")) as own:
            own.execute("CREATE TABLE t AS SELECT 1 AS v")
        with start_python(COMMIT, target.path("x.duckdb")) as child:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            (tmp_path / "away").hardlink_to(target.name)
            other.rename(target.name)
            answer = child.communicate("\n")[0]
        assert "TransactionContext" in answer, answer
        assert ("not attached by this process" if there else "which is not here") in answer, answer
        assert file_names(con, target) == ["x.duckdb"] * there
        with rawduck.connect(f"nvme://{tmp_path}/away/x.duckdb") as own:
            assert one(own, "SELECT sum(v) FROM t") == 1
