"""Includes and imports point down, and nothing goes round in a circle."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
# Lowest first. A folder that is not named belongs to the one that holds it.
LAYERS = [
    "common",
    "target/system",
    "target/nvme",
    "target",
    "target/occupants",
    "target/lock",
    "io/device",
    "io/stripe",
    "io/engine",
    "io/request",
    "io/queue",
    "io",
    "volume/format",
    "volume/names",
    "volume/tree",
    "volume/catalog",
    "volume/space",
    "volume/journal",
    "volume/readers",
    "volume/damage",
    "volume/log",
    "volume/spill",
    "volume/file",
    "volume/mount",
    "volume/upkeep",
    "volume",
    "volume/setup",
    "direct",
    "volume/backup",
    "gpu/decode",
    "gpu/columns",
    "gpu/ring",
    "gpu/kernels",
    "gpu/device",
    "gpu/ring/host",
    "gpu/pipeline",
    "extension/memory",
    "extension/file_systems",
    "gpu/plan",
    "gpu/scan",
    "gpu/query",
    "gpu/exports",
    "extension/sql",
    "gpu/sql",
    "extension",
]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)

#: An object that outlives a function and has a destructor: "static T x;", or "const std::T X = ..." at the
#: start of a line. Not "static auto &x = *new T", nor what is constexpr.
STANDARD = r"std::(?:string|vector|map|set|unordered_\w+|deque|list|function|unique_ptr|shared_ptr)\b"
OWNING = rf"{STANDARD}(?:<[^\n;{{}}()]*>)?"
DESTROYED = re.compile(
    rf"^(?:\s*static (?:const )?|inline |(?:inline )?const ){OWNING} \w+(?:;| = |\(\"|\{{)|"
    rf"^\s*static [A-Z]\w+ \w+;",
    re.MULTILINE,
)

LINES_MOST = 500
FILES_MOST = 16


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
    assert layer_of("io/engine/xnvme/xnvme.cpp") == LAYERS.index("io/engine")
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
    """What lies below the extension builds and is tested without DuckDB."""
    core = [(path, name) for path, name in includes() if layer_of(path) < LAYERS.index("extension/memory")]
    assert not [f"src/{path} includes {name}" for path, name in core if name.startswith("duckdb")]


def uses_of_sources() -> dict[str, set[str]]:
    """What each source below src and ceph includes. A source is a header and its .cpp, without the ending."""
    uses: dict[str, set[str]] = {}
    for path in source_files("src", "ceph"):
        source = str(path.relative_to(ROOT).with_suffix(""))
        for name in INCLUDE.findall(path.read_text()):
            other = Path(name) if name.startswith("ceph/") else Path("src") / name
            if (ROOT / other).exists():
                uses.setdefault(source, set()).add(str(other.with_suffix("")))
    return {source: others - {source} for source, others in uses.items()}


def find_circle(uses: dict[str, set[str]]) -> list[str]:
    """A way from a node back to itself; empty when there is none."""
    done: set[str] = set()

    def search(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for other in sorted(uses.get(node, ())):
            circle = search(other, [*way, node])
            if circle:
                return circle
        done.add(node)
        return []

    for node in sorted(uses):
        circle = search(node, [])
        if circle:
            return circle
    return []


def test_circles_are_found():
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_sources_form_no_circle():
    assert find_circle(uses_of_sources()) == []


def test_files_are_short():
    lengths = {
        path: len(path.read_text().splitlines())
        for path in source_files("src", "ceph", "python", "scripts", "test")
    }
    long = {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > LINES_MOST}
    assert not long, f"longer than {LINES_MOST} lines: {long}"


def crowded_folders(paths: list[str]) -> dict[str, int]:
    """Folders that hold too many files directly, with their number."""
    counts = Counter(str(Path(path).parent) for path in paths)
    return {folder: count for folder, count in counts.items() if count > FILES_MOST}


def test_crowded_folders_are_found():
    few = [f"src/io/file{number}.cpp" for number in range(FILES_MOST)]
    assert crowded_folders(few) == {}
    assert crowded_folders([*few, "src/io/queue/x.cpp"]) == {}
    assert crowded_folders([*few, "src/io/x.cpp"]) == {"src/io": FILES_MOST + 1}


def test_folders_hold_few_files():
    paths = [str(path.relative_to(ROOT)) for path in source_files("src", "ceph", "python", "test")]
    assert paths
    assert not crowded_folders(paths)


def destroyed_at_exit(text: str) -> list[str]:
    return [found.group().strip() for found in DESTROYED.finditer(text)]


def test_nothing_is_destroyed_when_the_process_ends():
    """Exit handlers close databases, too, which use what we keep. Say constexpr, or *new."""
    files = source_files("src", "ceph")
    found = {str(path.relative_to(ROOT)): destroyed_at_exit(path.read_text()) for path in files}
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('const std::string MAGIC("DUCK", 4);', True),
        ("const std::unordered_set<std::string> ALLOWED = {", True),
        ("    static std::map<std::string, const Module *> loaded;", True),
        ("    static Log log;", True),
        ("static std::vector<int> all;", True),
        ("    static auto &log = *new Log;", False),
        ("constexpr std::string_view MAGIC = x;", False),
        ("    static std::mutex mutex;", False),
        ("    static std::string Name(int number);", False),
        ("const std::vector<std::string> &Names() {", False),
    ],
)
def test_what_is_destroyed_is_recognised(text, is_found):
    assert bool(destroyed_at_exit(text)) is is_found


CEPH_LAYERS = [
    "protocol",
    "parquet",
    "channel",
    "osd",
    "query",
    "helper/supervisor",
    "helper/worker",
    "helper",
    "settings",
    "rados/connection",
    "rados/pool",
    "rados",
    "pushdown/feedback",
    "files",
    "pushdown/proof",
    "pushdown/pruning",
    "pushdown/scan",
    "pushdown/plan",
    "pushdown/decision",
    "pushdown",
    "sql",
    "",
]
CEPH_BORROWS = re.compile(r"^(common|extension/file_systems|extension/sql)/")
DUCKDB_FREE = (
    "protocol",
    "parquet",
    "channel",
    "osd",
    "helper/supervisor",
    "pushdown/feedback",
    "rados",
    "rados/connection",
    "rados/pool",
)


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


def imports(path: Path) -> set[str]:
    """The modules of ours that a module needs at run time."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("rawduck.")}


PYTHON_LAYERS = [
    "",
    "measuring",
    "measuring/gpu",
    "ceph",
    "bench/core",
    "bench/experiments/device",
    "bench/experiments/ceph",
    "bench/experiments/gpu",
    "bench/experiments",
    "bench",
    "commands",
]


def python_modules() -> dict[str, Path]:
    folder = ROOT / "python"
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): path
        for path in folder.rglob("*.py")
    }


def test_python_modules_form_no_circle():
    modules = python_modules()
    assert find_circle({name: imports(path) & set(modules) - {name} for name, path in modules.items()}) == []


def test_python_imports_point_down():
    """What is used by several parts of the package lies in its root, cli.py alone is above all."""
    modules = python_modules()

    def height(name: str) -> int:
        if name == "rawduck.cli":
            return len(PYTHON_LAYERS)
        folder = str(modules[name].parent.relative_to(ROOT / "python" / "rawduck")).strip(".")
        return PYTHON_LAYERS.index(folder)

    for name, path in modules.items():
        for other in imports(path) & set(modules):
            assert height(other) <= height(name), f"{name} imports {other}"
