"""All 22 TPC-H queries on a volume give DuckDB's own reference answers; the demo runs end to end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import rawduck
from rawduck import tpch
from support import attach, loop_device, make_target, run_cli

ROOT = Path(__file__).resolve().parents[3]
SCALE = 0.1
SOURCE = Path(os.environ.get("RAWDUCK_DUCKDB_SOURCE", ROOT / "build/duckdb-2.0.0"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpch")
    tpch.generate(folder / "data", SCALE)
    return folder / "data"


@pytest.fixture(scope="module", params=["memory-4096", "file-512", "file-4096", "loop-512", "loop-4096"])
def loaded(request, data, tmp_path_factory):
    with make_target(request.param, tmp_path_factory.mktemp("volume")) as target:
        with rawduck.connect(target.path("tpch.duckdb")) as con:
            for table in tpch.TABLES:
                con.execute(tpch.load_statement(data, table))
        yield target


def test_every_answer(loaded):
    reference = tpch.Reference(SOURCE, SCALE)
    with rawduck.connect() as con:
        attach(con, loaded, "tpch.duckdb", "(READ_ONLY)")
        con.execute("USE tpch")
        results = {n: con.execute(reference.query(n)).fetchall() for n in tpch.QUERY_NUMBERS}
    wrong = {n: tpch.difference(rows, reference.answer(n)) for n, rows in results.items()}
    assert len(wrong) == 22
    assert not {n: text for n, text in wrong.items() if text}


def test_a_wrong_answer_is_noticed():
    answer = tpch.Reference(SOURCE, SCALE).answer(1)
    with rawduck.connect() as con:
        rows = [tuple(row) for row in answer]
        assert tpch.difference(rows, answer) == ""
        assert "rows" in tpch.difference(rows[1:], answer)
        cents = con.execute(f"SELECT {answer[0][3]}::DECIMAL(18,2) + 0.01").fetchone()[0]
        assert "row 1" in tpch.difference([(*rows[0][:3], cents, *rows[0][4:]), *rows[1:]], answer)


def test_answers_with_little_memory(loaded):
    """The same answers when blocks are evicted and read again, and the rest is spilled to the volume."""
    reference = tpch.Reference(SOURCE, SCALE)
    with rawduck.connect(config={"memory_limit": "40MB", "block_allocator_memory": "0B"}) as con:
        con.execute(f"SET temp_directory = '{loaded.path('tmp')}'")
        attach(con, loaded, "tpch.duckdb", "(READ_ONLY)")
        con.execute("USE tpch")
        for number in (1, 9, 13, 18, 21):
            rows = con.execute(reference.query(number)).fetchall()
            assert tpch.difference(rows, reference.answer(number)) == "", f"query {number}"


def test_demo(tmp_path):
    options = ["--scale", "0.01", "--work-dir", str(tmp_path), "--duckdb-source", str(SOURCE)]
    result = run_cli("demo", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "every answer right" in result.stdout
    assert "geometric mean" in result.stdout
    assert "tpch.duckdb" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tpch-sf0.01"]


def test_demo_notices_wrong_answers(tmp_path):
    """With the answers of another scale factor every check must fail, and the exit code must say so."""
    fake = tmp_path / "source"
    answers = fake / "external/duckdb/extension/tpch/dbgen"
    answers.mkdir(parents=True)
    real = SOURCE.absolute() / "external/duckdb/extension/tpch/dbgen"
    (answers / "queries").symlink_to(real / "queries")
    (answers / "answers").mkdir()
    (answers / "answers/sf0.01").symlink_to(real / "answers/sf0.1")
    result = run_cli(
        "demo", "--scale", "0.01", "--work-dir", str(tmp_path / "w"), "--duckdb-source", str(fake)
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "wrong" in result.stdout


def test_demo_on_a_device(tmp_path):
    with loop_device(tmp_path / "disk.img", 512, "512M") as device:
        options = ["--scale", "0.01", "--work-dir", str(tmp_path / "w"), "--duckdb-source", str(SOURCE)]
        result = run_cli("demo", "--target", device, *options)
        assert result.returncode == 0, result.stdout + result.stderr
        assert device in result.stdout
        refused = run_cli("demo", "--target", device, *options)
        assert refused.returncode == 2
        assert "rawduck" in refused.stderr
        assert "force" in refused.stderr
        stock = tmp_path / "w" / "rawduck-demo.duckdb"
        stock.write_bytes(b"kept")
        unasked = run_cli("demo", "--target", device, *options, "--force")
        assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True), unasked.stderr
        assert stock.read_bytes() == b"kept"
