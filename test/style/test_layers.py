"""Includes point down: extension, sql, filesystem, volume, volume/format, io, device, common."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
LAYERS = ["common", "device", "io", "volume/format", "volume", "filesystem", "sql", ""]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)

LINES_GOOD = 500
LINES_MOST = 600


def layer_of(path: str) -> int:
    """The height of a file's layer, by its path below src; the deepest matching folder decides."""
    folder = Path(path).parent
    for candidate in (folder, *folder.parents):
        name = "" if str(candidate) == "." else str(candidate)
        if name in LAYERS:
            return LAYERS.index(name)
    raise AssertionError(f"src/{path} lies in no layer; add its folder to {__file__}")


def source_files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in found if path.suffix in (".cpp", ".hpp", ".py"))


def test_layer_of_nested_folders():
    assert layer_of("io/engines/posix.cpp") == LAYERS.index("io")
    assert layer_of("volume/format/record.hpp") < layer_of("volume/volume.hpp")


def includes() -> list[tuple[str, str]]:
    """Every pair of a file below src and a name that it includes in quotes."""
    files = {str(path.relative_to(SOURCE)): path.read_text() for path in source_files("src")}
    return [(path, name) for path, text in files.items() for name in INCLUDE.findall(text)]


def test_includes_point_down():
    ours = [(path, name) for path, name in includes() if (SOURCE / name).exists()]
    upward = [f"src/{path} includes {name}" for path, name in ours if layer_of(name) > layer_of(path)]
    assert ours
    assert not upward


def test_core_is_free_of_duckdb():
    """What lies below the file system layer builds and is tested without DuckDB."""
    core = [(path, name) for path, name in includes() if layer_of(path) < LAYERS.index("filesystem")]
    assert not [f"src/{path} includes {name}" for path, name in core if name.startswith("duckdb")]


def test_files_are_short():
    lengths = {
        path: len(path.read_text().splitlines())
        for path in source_files("src", "ceph", "python", "scripts", "test")
    }
    for path, lines in lengths.items():
        if LINES_GOOD < lines <= LINES_MOST:
            print(f"warning: {path.relative_to(ROOT)} has {lines} lines; is it still one concept?")
    long = {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > LINES_MOST}
    assert not long, f"longer than {LINES_MOST} lines: {long}"


CEPH_LAYERS = ["protocol", "query", "class", "client", "filesystem", "pushdown", "sql", ""]
CEPH_BORROWS = re.compile(r"^(common|filesystem|sql)/|^volume/format/crc32c.hpp$")
DUCKDB_FREE = ("client", "protocol")


def test_ceph_stands_beside_the_rest():
    """Nothing below src knows of Ceph. Below ceph includes point down, and the lowest need no DuckDB."""
    assert not [f"src/{path} includes {name}" for path, name in includes() if name.startswith("ceph/")]
    files = {path.relative_to(ROOT / "ceph"): path.read_text() for path in source_files("ceph")}
    found = [
        (str(path.parent).strip("."), name) for path, text in files.items() for name in INCLUDE.findall(text)
    ]
    assert found
    for folder, name in found:
        if name.startswith("ceph/"):
            other = str(Path(name).parent.relative_to("ceph")).strip(".")
            assert CEPH_LAYERS.index(other) <= CEPH_LAYERS.index(folder), f"ceph/{folder} includes {name}"
        elif name.startswith("duckdb"):
            assert folder not in DUCKDB_FREE, f"ceph/{folder} includes {name}"
        else:
            assert CEPH_BORROWS.match(name), f"ceph/{folder} includes {name}"


NAMESPACE = re.compile(r"^namespace (\w+)", re.MULTILINE)
OWN_NAMESPACES = {"src": "rawduck", "ceph": "rawduck_ceph"}


@pytest.mark.parametrize("folder", OWN_NAMESPACES)
def test_each_part_has_its_namespace(folder):
    """Both parts lie in one process and in some of the tests' programs: no name may be there twice."""
    for path in source_files(folder):
        opened = set(NAMESPACE.findall(path.read_text())) - {"duckdb"}
        assert opened <= {OWN_NAMESPACES[folder]}, path
