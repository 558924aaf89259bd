"""Brings DuckDB's source release to a folder: the extension is compiled against its headers, and the demo
takes queries and answers from it. A script, too, because the build needs it before there is a package.

`duckdb_source.py FOLDER` leaves FOLDER/duckdb-2.0.0 and prints the path of DuckDB's own source in it. Does
nothing when it is there already. The source comes from PyPI through pip, which checks it against the pinned
SHA-256 before it looks inside.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

VERSION = "2.0.0"
SHA256 = "09de511ef0dc76a5213e8d3d87a8b89bb4d3e8a6fe73a9f60dc001269946b44f"
SOURCE = os.path.join(f"duckdb-{VERSION}", "external", "duckdb")
PROOF = os.path.join("src", "include", "duckdb", "main", "extension", "extension_loader.hpp")


class FetchError(Exception):
    """The source is not there, and why."""


def download(folder: str) -> str:
    requirements = os.path.join(folder, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(f"duckdb=={VERSION} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", "duckdb", "--require-hashes", "--dest", folder, "--requirement", requirements]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    archive = os.path.join(folder, f"duckdb-{VERSION}.tar.gz")
    if result.returncode != 0 or not os.path.exists(archive):
        raise FetchError(
            f"{result.stdout}{result.stderr}\n"
            f"could not download the source of duckdb {VERSION} from PyPI (see above). "
            f"Without a network, extract duckdb-{VERSION}.tar.gz somewhere. To build, configure with "
            f"-DRAWDUCK_DUCKDB_SOURCE=<folder>/{SOURCE}; for the demo, say "
            f"--duckdb-source <folder>/duckdb-{VERSION}"
        )
    return archive


def fetch(folder: str) -> str:
    """The path of DuckDB's own source below `folder`, downloaded if it is not there. Raises FetchError."""
    source = os.path.join(folder, SOURCE)
    if os.path.exists(os.path.join(source, PROOF)):
        return source
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as temporary:
        with tarfile.open(download(temporary)) as archive:
            # The filter refuses entries that would land elsewhere; Pythons before 3.11.4 do not have it.
            archive.extractall(temporary, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        # Moved into place when complete, so that an interrupted run leaves nothing that looks finished.
        shutil.rmtree(os.path.join(folder, f"duckdb-{VERSION}"), ignore_errors=True)
        os.rename(os.path.join(temporary, f"duckdb-{VERSION}"), os.path.join(folder, f"duckdb-{VERSION}"))
    return source


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    try:
        print(fetch(os.path.abspath(parser.parse_args().folder)))
    except FetchError as error:
        raise SystemExit(f"duckdb_source.py: {error}") from None


if __name__ == "__main__":
    main()
