"""The wheels of `make wheel`, and empty environments to install them into, whose PATH has no compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.search(r"project\(rawduck VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
WHEEL = ROOT / "dist" / f"rawduck-{VERSION}-py3-none-manylinux_2_31_x86_64.whl"
CEPH_WHEEL = ROOT / "dist" / f"rawduck_ceph-{VERSION}-py3-none-manylinux_2_31_x86_64.whl"
SYSROOT = ROOT / "build/sysroot/x86_64"
#: Of these, every Linux with that C library has a version that fits.
SYSTEM_LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "libgcc_s.so.1",
    "libstdc++.so.6",
}
LOADER = "ld-linux-x86-64.so.2"
CPYTHONS = ("3.11", "3.12", "3.13", "3.14")


def run(*command: str | Path, **options) -> str:
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


class Environment:
    """A virtual environment, whose programs find no others."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        run(sys.executable, "-m", "venv", folder)
        self.bin = folder / "bin"
        self.folder = folder
        self.install(*arguments)

    def install(self, *arguments: str | Path) -> None:
        run(self.bin / "python", "-m", "pip", "install", "--quiet", *arguments)

    @property
    def variables(self) -> dict[str, str]:
        registries = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        return {**registries, "PATH": str(self.bin), "HOME": str(self.folder)}

    def run(self, program: str, *arguments: str | Path) -> str:
        return run(self.bin / program, *arguments, cwd=self.folder, env=self.variables)


def unpacked(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def needed_by(library: Path) -> set[str]:
    """The libraries that it names, without those that every system has."""
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "--dynamic", library))
    return set(needed) - SYSTEM_LIBRARIES - {LOADER}


def undefined_in(library: Path, libraries: Path) -> set[str]:
    """Symbols that the dynamic linker and the libraries of the oldest system do not have."""
    tracing = {"LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "1", "LD_BIND_NOW": "1"}
    command = [
        libraries / LOADER,
        "--library-path",
        f"{libraries}:{SYSROOT}/usr/lib/x86_64-linux-gnu",
        library,
    ]
    result = subprocess.run(list(map(str, command)), env=tracing, capture_output=True, text=True, check=True)
    assert "not found" not in result.stdout + result.stderr
    return set(re.findall(r"undefined symbol: (\S+)", result.stdout + result.stderr))
