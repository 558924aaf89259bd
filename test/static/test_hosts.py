"""The static form in programs of several languages: `make static`.

DuckDB's library in the JDBC driver exports its C interface and none of its C++ symbols, as the command-line
client does not. C++ and Rust programs are linked with that one, so all of them but Python need DuckDB's code
inside the extension.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from rawduck import duckdb_source

HOSTS = Path(__file__).with_name("hosts")
ROOT = HOSTS.parents[2]
STATIC_FORM = ROOT / "build/static/extension/extension/rawduck/rawduck.duckdb_extension"
#: Of each host those that are DuckDB 2.0.0.
JDBC = ("2.0.0.0", "2.0.0.1")
LIBRARY = "libduckdb_java.so_linux_amd64"


def run(*command: str | Path, **options) -> str:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def need(*programs: str) -> None:
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here")


@pytest.fixture(scope="session")
def driver():
    """Of a version, the path of the driver, which Maven downloads."""
    need("mvn", "javac")

    def path(version: str) -> Path:
        repository = ROOT / "build/static/maven"
        options = ["-q", "-B", f"-Dmaven.repo.local={repository}", "dependency:get"]
        run("mvn", *options, f"-Dartifact=org.duckdb:duckdb_jdbc:{version}", cwd=ROOT / "build/static")
        return repository / f"org/duckdb/duckdb_jdbc/{version}/duckdb_jdbc-{version}.jar"

    return path


@pytest.fixture(scope="session")
def library(driver, tmp_path_factory):
    """A folder with DuckDB's library of the newest driver, as linkers and as programs look for it."""
    folder = tmp_path_factory.mktemp("library")
    with zipfile.ZipFile(driver(JDBC[-1])) as jar:
        jar.extract(LIBRARY, folder)
    (folder / "libduckdb.so").symlink_to(LIBRARY)
    symbols = run("nm", "--dynamic", "--defined-only", folder / LIBRARY)
    assert "duckdb_query" in symbols
    assert "_ZN6duckdb" not in symbols
    return folder


def headers() -> Path:
    return Path(duckdb_source.fetch(str(ROOT / "build"))) / "src/include"


@pytest.fixture
def statements(tmp_path):
    """What every host runs, each with a part of what it must print."""
    volume = tmp_path / "volume.rawduck"
    database, copy = f"nvme://{volume}/sales.duckdb", f"direct://{tmp_path}/copy.duckdb"
    loader = Path(run(ROOT / ".venv/bin/rawduck", "extension-path").strip())
    rows = "300010 300009 value 99999"
    return loader, [
        (f"LOAD '{STATIC_FORM}'", "ok"),
        (f"SELECT target FROM nvme_format('{volume}', size := '256M', label := 'static')", str(volume)),
        (f"ATTACH '{database}' AS sales", "ok"),
        ("CREATE TABLE sales.t AS SELECT range i, 'value ' || range s FROM range(300000)", ""),
        ("INSERT INTO sales.t SELECT range, NULL FROM range(300000, 300010)", ""),
        ("SELECT count(*), max(i), max(s) FROM sales.t", rows),
        (f"ATTACH '{database}' AS again", "already attached"),
        ("ATTACH 'nvme:///missing/x.duckdb' AS missing", "rawduck format"),
        ("SET nvme_queues = 'depth=0'", "from 1 to 4096"),
        (f"SET temp_directory = 'nvme://{volume}/spill'", "ok"),
        ("SET memory_limit = '100MB'", "ok"),
        (
            "CREATE TEMP TABLE sorted AS SELECT s, i + range AS k FROM sales.t, range(20) ORDER BY hash(k)",
            "",
        ),
        ("SELECT count(*), min(s) FROM sorted", "6000200 value 0"),
        ("SELECT sum(bytes) > 20000000 FROM nvme_stats() WHERE operation = 'write'", "true"),
        ("DROP TABLE sorted", "ok"),
        ("RESET memory_limit", "ok"),
        ("DETACH sales", "ok"),
        (f"ATTACH '{database}' AS sales (READ_ONLY)", "ok"),
        ("SELECT count(*), max(i), max(s) FROM sales.t", rows),
        ("SELECT label FROM nvme_volumes()", "static"),
        ("DETACH sales", "ok"),
        (f"SELECT bytes > 0 FROM nvme_copy('{database}', '{copy}')", "true"),
        (f"ATTACH '{copy}' AS copied", "ok"),
        ("SELECT count(*), max(i), max(s) FROM copied.t", rows),
        (f"SELECT count(*) FROM nvme_check('{volume}') WHERE severity <> 'ok'", "0"),
    ]


def check(statements, tmp_path, *command: str | Path, exports: bool = False, **options) -> None:
    loader, expected = statements
    file = tmp_path / "statements.sql"
    file.write_text("".join(f"{statement}\n" for statement, _ in expected))
    printed = run(*command, file, **options).splitlines()
    assert len(printed) == len(expected), printed
    for (statement, part), line in zip(expected, printed, strict=True):
        assert part.lower() in line.lower(), f"{statement}\n{line}"
    # The host form needs what these programs do not export, and says which form to take instead.
    file.write_text(f"LOAD '{loader}'\n")
    line = run(*command, file, **options).strip()
    assert line == "ok" if exports else "make static" in line


def test_python(statements, tmp_path):
    """Two copies of DuckDB in one process, one of which exports its symbols, do not mix."""
    check(statements, tmp_path, sys.executable, HOSTS / "host.py", exports=True)


@pytest.mark.parametrize("version", JDBC)
def test_jdbc(driver, statements, tmp_path, version):
    check(statements, tmp_path, "java", "-cp", driver(version), HOSTS / "Host.java")


def test_cpp(library, statements, tmp_path):
    program = tmp_path / "host"
    options = ["-std=c++17", "-Wno-deprecated-declarations", f"-I{headers()}", f"-L{library}", "-lduckdb"]
    run("c++", HOSTS / "host.cpp", "-o", program, *options)
    check(statements, tmp_path, program, env={**os.environ, "LD_LIBRARY_PATH": str(library)})


def test_rust(library, statements, tmp_path):
    need("cargo")
    variables = {**os.environ, "LD_LIBRARY_PATH": str(library), "DUCKDB_LIB_DIR": str(library)}
    # Cargo writes beside the sources.
    crate = shutil.copytree(HOSTS / "rust", ROOT / "build/static/rust", dirs_exist_ok=True)
    command = ["cargo", "build", "--quiet", "--manifest-path", crate / "Cargo.toml"]
    run(*command, env={**variables, "DUCKDB_INCLUDE_DIR": str(headers())})
    check(statements, tmp_path, crate / "target/debug/host", env=variables)
