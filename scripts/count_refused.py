"""What stands against another release of DuckDB: lines of the extension that clang refuses with its headers.

    count_refused.py 1.5.6      downloads that release's source into build/, prints a line per file, and sums

Behind a line that is refused, clang does not always look further: the sums are the least there is to change.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# As in CMakeLists.txt.
FOLDERS = ("extension", "gpu/exports", "gpu/plan", "gpu/query", "gpu/scan", "gpu/sql")


def source_of(release: str) -> Path:
    """DuckDB's own source of that release, downloaded if it is not there."""
    folder = ROOT / "build" / f"duckdb-{release}"
    if not folder.exists():
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="fetch-") as temporary:
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", "duckdb"]
            command = [sys.executable, "-m", "pip", "download", *options, "--dest", temporary]
            subprocess.run([*command, f"duckdb=={release}"], check=True)
            with tarfile.open(Path(temporary) / f"duckdb-{release}.tar.gz") as archive:
                archive.extractall(temporary, filter="data")
            (Path(temporary) / f"duckdb-{release}").rename(folder)
    return folder / "external" / "duckdb"


def refused(file: Path, duckdb: Path) -> set[tuple[str, int]]:
    includes = [f"-isystem{duckdb}/src/include", f"-isystem{duckdb}/third_party/utf8proc/include"]
    definitions = ['-DRAWDUCK_DUCKDB_VERSION=""', '-DRAWDUCK_VERSION=""']
    options = ["-std=c++17", "-fsyntax-only", "-ferror-limit=0", "-fno-caret-diagnostics", f"-I{ROOT}/src"]
    command = ["clang++", *options, *includes, *definitions, str(file)]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    found = {
        (name, int(line)) for name, line in re.findall(r"^(\S+?):(\d+):\d+: (?:fatal )?error:", output, re.M)
    }
    # An error in DuckDB's templates is one of the line of ours that instantiates them.
    found |= {
        (name, int(line))
        for name, line in re.findall(r"^(\S+?):(\d+):\d+: note: in instantiation", output, re.M)
    }
    return {(name, line) for name, line in found if name.startswith(f"{ROOT}/src/")}


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    duckdb = source_of(sys.argv[1])
    files = sorted(
        file
        for folder in FOLDERS
        for file in (ROOT / "src" / folder).rglob("*.cpp")
        if file.name != "loader.cpp"
    )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = set().union(*pool.map(lambda file: refused(file, duckdb), files))
    for name in sorted({name for name, _ in lines}):
        print(f"{sum(1 for other, _ in lines if other == name):4} {Path(name).relative_to(ROOT)}")
    names = {name for name, _ in lines}
    print(
        f"DuckDB {sys.argv[1]}: {len(lines)} lines are refused in {len(names)} files, of {len(files)} sources"
    )


if __name__ == "__main__":
    main()
