"""DuckDB's own build takes this tree as one of its extensions. Nothing is compiled here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from rawduck import duckdb_source

ROOT = Path(__file__).resolve().parents[3]
VERSION = re.search(r"project\(rawduck VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def configure(folder: Path, version: str) -> subprocess.CompletedProcess:
    source = duckdb_source.fetch(str(ROOT / "build"))
    archive = folder / "libduckdb_static.a"
    archive.write_bytes(b"!<arch>\n")
    settings = {
        "DUCKDB_EXTENSION_CONFIGS": ROOT / "extension_config.cmake",
        "DUCKDB_EXPLICIT_VERSION": version,
        "DUCKDB_EXPLICIT_PLATFORM": "linux_amd64",
        "EXTENSION_STATIC_BUILD": 1,
        "PREBUILT_BINARY": archive,
        "CMAKE_BUILD_TYPE": "Release",
        "BUILD_SHELL": 0,
        "BUILD_UNITTESTS": 0,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    command = ["cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def test_it_is_an_extension_of_duckdbs_build(tmp_path):
    configured = configure(tmp_path, f"v{duckdb_source.VERSION}")
    assert configured.returncode == 0, configured.stderr
    assert f"Load extension 'rawduck' from '{ROOT}' @ {VERSION}" in configured.stdout
    ask = ["ninja", "-C", tmp_path / "build", "-t", "commands", "rawduck_loadable_extension"]
    commands = subprocess.run(list(map(str, ask)), capture_output=True, text=True, check=True).stdout
    for compiled in ("src/io/engine/io_uring.cpp", "gpu_kernels/images.cpp"):
        assert compiled in commands
    assert "src/extension/loader.cpp" not in commands
    link = next(line for line in commands.splitlines() if "-soname,rawduck.duckdb_extension" in line)
    for part in ("librawduck_extension.a", "libduckdb_static.a", "liburing", "libblkid", "--version-script="):
        assert part in link
    unity = (tmp_path / "build").rglob("unity_*_cxx.cxx")
    assert any("src/extension/extension.cpp" in file.read_text() for file in unity)


def test_another_duckdb_is_refused(tmp_path):
    configured = configure(tmp_path, "v2.0.1")
    assert configured.returncode != 0
    assert "rawduck is for DuckDB v2.0.0" in " ".join(configured.stderr.split())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "rawduck"),
        ("version", VERSION),
        ("language", r"C\+\+"),
        ("build", "cmake"),
        ("license", "MIT"),
    ],
)
def test_the_description_for_community_extensions(field, value):
    assert re.search(rf"^  {field}: {value}$", (ROOT / "description.yml").read_text(), re.MULTILINE)
