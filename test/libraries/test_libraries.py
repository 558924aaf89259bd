"""Libraries do the same on a volume as on a file of stock DuckDB."""

from __future__ import annotations

import subprocess
import sys

import ibis
import nbclient
import nbformat
import pandas
import polars
import pyarrow
import pytest
import rawduck
import sqlalchemy

QUERY = "SELECT customer, count(*) AS n, sum(price) AS total FROM orders GROUP BY ALL ORDER BY ALL"


def test_pandas(volume, file):
    def use(path: str) -> pandas.DataFrame:
        with rawduck.connect(path) as con:
            read = pandas.read_sql(QUERY, con)
            con.register("frame", read)
            con.execute("CREATE TABLE copied AS FROM frame")
            assert con.cursor().execute("FROM copied").df().equals(read)
            return read

    assert len(use(volume)) == 3
    with rawduck.connect(volume) as on_volume, rawduck.connect(file) as on_file:
        assert on_volume.sql(QUERY).df().equals(on_file.sql(QUERY).df())


def test_polars(volume, file):
    def use(path: str) -> polars.DataFrame:
        with rawduck.connect(path) as con:
            assert con.sql(QUERY).pl().equals(polars.read_database(QUERY, con))
            return polars.read_database(QUERY, con.cursor())

    assert use(volume).equals(use(file))


def test_pyarrow(volume, file):
    def use(path: str) -> pyarrow.Table:
        with rawduck.connect(path) as con:
            table = con.sql(QUERY).to_arrow_table()
            con.register("table_of_python", table)
            assert con.execute("SELECT count(*) FROM table_of_python").fetchall() == [(3,)]
            return table

    assert use(volume).equals(use(file))


def test_sqlalchemy(volume, file):
    def use(path: str) -> tuple:
        engine = sqlalchemy.create_engine(f"duckdb:///{path}")
        with engine.begin() as con:
            con.execute(sqlalchemy.text("CREATE TABLE made AS SELECT 42 AS v"))
        with engine.connect() as first, engine.connect() as second:
            rows = [con.execute(sqlalchemy.text(QUERY)).fetchall() for con in (first, second)]
        names = sqlalchemy.inspect(engine).get_table_names()
        engine.dispose()
        return rows, sorted(names)

    rawduck.register()
    assert use(volume) == use(file)


def test_sqlalchemy_with_settings(volume):
    rawduck.register()
    options = {"read_only": True, "config": {"nvme_engine": "posix"}}
    engine = sqlalchemy.create_engine(f"duckdb:///{volume}", connect_args=options)
    with engine.connect() as con:
        assert con.execute(sqlalchemy.text("SELECT engine FROM nvme_volumes()")).fetchall() == [("posix",)]
    engine.dispose()


def outcome(step) -> str:
    """What came of a step: its result, or the kind of error. Ibis 12 calls what DuckDB 2.0.0 has no more."""
    try:
        return str(step())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_ibis(volume, file):
    def use(path: str) -> list[str]:
        # ibis.duckdb.connect() makes a path of the file system of whatever it is given.
        con = ibis.duckdb.from_connection(rawduck.connect(path))
        orders = con.table("orders")
        grouped = orders.group_by("customer").agg(n=orders.count()).order_by("customer")
        assert grouped.execute()["n"].tolist() == [334, 333, 333]
        assert orders.to_pyarrow().num_rows == 1000
        steps = [
            lambda: con.list_tables(),
            lambda: con.current_database,
            lambda: con.create_table("made", orders.limit(5)).count().execute(),
            lambda: con.sql("SELECT 1 AS one").execute(),
        ]
        outcomes = [outcome(step) for step in steps]
        con.disconnect()
        return outcomes

    assert use(volume) == use(file)


@pytest.mark.parametrize(
    "connect", ["%sql duckdb:///{path}", "con = rawduck.connect('{path}')\n%sql con --alias shop"]
)
def test_notebook_with_jupysql(volume, connect):
    cells = [
        "import rawduck\nrawduck.register()\n%load_ext sql",
        connect.format(path=volume),
        f"found = %sql {QUERY}\nprint(len(found), 'rows')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    assert "3 rows" in [output.get("text", "").strip() for output in notebook.cells[-1].outputs]


def test_dbt(volume, tmp_path):
    project = tmp_path / "project"
    (project / "models").mkdir(parents=True)
    (project / "dbt_project.yml").write_text(
        "name: shop\nversion: '1.0'\nprofile: shop\nmodels: {shop: {+materialized: table}}\n"
    )
    (project / "profiles.yml").write_text(
        f"shop: {{target: dev, outputs: {{dev: {{type: duckdb, path: '{volume}', threads: 2}}}}}}\n"
    )
    (project / "models" / "customers.sql").write_text(QUERY)
    (project / "models" / "customer_count.sql").write_text("SELECT count(*) AS n FROM {{ ref('customers') }}")
    program = "import rawduck; rawduck.register(); from dbt.cli.main import cli; cli()"
    command = [sys.executable, "-c", program, "run", "--profiles-dir", ".", "--no-send-anonymous-usage-stats"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    with rawduck.connect(volume) as con:
        assert con.execute("FROM customer_count").fetchall() == [(3,)]


def test_without_the_package(volume):
    """Plain DuckDB, which has the extension's files and nothing else of rawduck."""
    code = f"""
import duckdb
con = duckdb.connect(config={{"allow_unsigned_extensions": True}})
con.execute("LOAD '{rawduck.extension_path()}'")
con.execute("ATTACH '{volume}' AS shop; USE shop")
print(con.execute("SELECT count(*) FROM orders").fetchone()[0])
print(con.cursor().execute("SELECT count(*) FROM shop.orders").fetchone()[0])
"""
    command = [sys.executable, "-I", "-c", code]  # without PYTHONPATH
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1000", "1000"], done.stderr
