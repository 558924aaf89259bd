"""A loop device and the file behind it are one volume under two names."""

import rawduck
from support import CHILD_SECONDS, loop_device, one, start_python

READ_BESIDE = """
connection.execute(f"ATTACH 'nvme://{sys.argv[1]}/x.duckdb@latest' AS x (READ_ONLY)")
print("ready", flush=True)
sys.stdin.readline()
print(connection.execute("SELECT count(*), sum(v) FROM x.t").fetchone())
"""


def test_a_reader_keeps_its_state_beside_a_writer_under_another_name(tmp_path, con):
    image = tmp_path / "disk.img"
    with loop_device(image, 4096, "128M") as device:
        con.execute("CALL nvme_format(?)", [device])
        for reader, writer in ((device, image), (image, device)):
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
