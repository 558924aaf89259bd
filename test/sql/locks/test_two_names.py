"""One volume under two names: a loop device and its file, or two devices over the same part of a file."""

import subprocess
from contextlib import ExitStack

import pytest
import rawduck
from support import CHILD_SECONDS, loop_device, one, start_python

READ_BESIDE = """
connection.execute(f"ATTACH 'nvme://{sys.argv[1]}/x.duckdb@latest' AS x (READ_ONLY)")
print("ready", flush=True)
sys.stdin.readline()
print(connection.execute("SELECT count(*), sum(v) FROM x.t").fetchone())
"""


def part_of(image, stack) -> str:
    """A loop device over what lies behind the first MiB."""
    options = ["--find", "--show", "--direct-io=on", "--sector-size", "4096"]
    part = ["--offset", str(1024**2), "--sizelimit", str(100 * 1024**2)]
    added = subprocess.run(["losetup", *options, *part, image], capture_output=True, text=True, check=True)
    device = added.stdout.strip()
    stack.callback(subprocess.run, ["losetup", "--detach", device], check=True)
    return device


@pytest.mark.parametrize("of_part", [False, True])
def test_a_reader_keeps_its_state_beside_a_writer_under_another_name(tmp_path, con, of_part):
    image = tmp_path / "disk.img"
    with loop_device(image, 4096, "128M") as whole, ExitStack() as stack:
        one_name, other_name = (part_of(image, stack), part_of(image, stack)) if of_part else (whole, image)
        con.execute("CALL nvme_format(?)", [one_name])
        for reader, writer in ((one_name, other_name), (other_name, one_name)):
            with rawduck.connect(f"nvme://{writer}/x.duckdb") as own:
                own.execute("CREATE OR REPLACE TABLE t AS SELECT range AS v FROM range(1000000)")
            with start_python(READ_BESIDE, str(reader)) as child:
                assert child.stdout.readline() == "ready\n", child.stderr.read()
                with rawduck.connect(f"nvme://{writer}/x.duckdb") as own:
                    kept = one(con, "SELECT count(*) FROM nvme_files(?) WHERE snapshot", str(writer))
                    for _ in range(3):
                        own.execute("UPDATE t SET v = v + 1")
                        own.execute("CHECKPOINT")
                assert kept > 0, "the writer has dropped what the reader reads"
                answer, errors = child.communicate("\n", timeout=CHILD_SECONDS)
                assert answer == f"(1000000, {1000000 * 999999 // 2})\n", errors
