"""Compiles src/gpu/kernels/kernels.cu for GPUs by NVRTC, which needs neither a GPU nor a CUDA toolkit.

    make_gpu_kernels.py --find                    says which NVRTC there is; exits with 1 where there is none
    make_gpu_kernels.py FOLDER --cache FOLDER     writes images.cpp, which has the kernels inside

A kernel that spills registers is an error. What is compiled already is taken from the cache, by the contents
of the sources, the options and NVRTC's version.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import importlib.metadata
import json
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
KERNELS = "gpu/kernels/kernels.cu"
PACKAGE = "nvidia-cuda-nvrtc-cu12"
#: From Turing on. PTX is for GPUs that come later.
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
PTX = 75
OPTIONS = ("--std=c++17", "--device-int128", "--fmad=false", "--ptxas-options=-v", f"--include-path={SOURCE}")
CACHE_FILES_MOST = 64


class Nvrtc:
    """NVRTC of the Python package, in this process."""

    def __init__(self) -> None:
        self.version = importlib.metadata.version(PACKAGE)
        folder = Path(str(importlib.metadata.distribution(PACKAGE).locate_file("nvidia/cuda_nvrtc/lib")))
        (builtins,) = [path for path in folder.glob("libnvrtc-builtins.so.*") if "alt" not in path.name]
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)  # it does not find them by itself
        self._library = ctypes.CDLL(str(folder / "libnvrtc.so.12"))

    def _call(self, name: str, *arguments: object) -> int:
        return getattr(self._library, f"nvrtc{name}")(*arguments)

    def _bytes(self, program: ctypes.c_void_p, name: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{name}Size", program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self._call(f"Get{name}", program, content)
        return content.raw

    def compile(self, target: str) -> tuple[bytes, str]:
        """For "sm_90" a cubin, for "compute_75" PTX; and what the compiler says of each kernel."""
        program = ctypes.c_void_p()
        source = f'#include "{KERNELS}"\n'.encode()
        self._call("CreateProgram", ctypes.byref(program), source, b"rawduck.cu", 0, None, None)
        options = [option.encode() for option in (f"--gpu-architecture={target}", *OPTIONS)]
        failed = self._call(
            "CompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options)
        )
        log = self._bytes(program, "ProgramLog").rstrip(b"\0").decode()
        if failed:
            raise SystemExit(f"make_gpu_kernels.py: {KERNELS} does not compile for {target}:\n{log}")
        return self._bytes(program, "CUBIN" if target.startswith("sm_") else "PTX"), log


def usage_of(log: str) -> dict[str, dict[str, int]]:
    """Registers and spilled bytes of each kernel, from what the compiler says."""
    usage: dict[str, dict[str, int]] = {}
    name = ""
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = found[1]
            usage[name] = {"registers": 0, "spilled": 0}
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            usage[name]["spilled"] += int(found[1]) + int(found[2])
        elif found := re.search(r"Used (\d+) registers", line):
            usage[name]["registers"] = int(found[1])
    return usage


def digest_of(target: str, version: str) -> str:
    digest = hashlib.sha256(f"{target} {version} {OPTIONS[:-1]}".encode())
    for folder in ("decode", "columns", "ring", "kernels"):
        for path in sorted((SOURCE / "gpu" / folder).glob("*")):
            if path.suffix in (".hpp", ".cu"):
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def write(path: Path, content: bytes) -> None:
    """As a whole: several builds may share the cache."""
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def image_of(target: str, cache: Path) -> Path:
    """The file with the image; beside it, as .json, what each kernel uses."""
    nvrtc_version = importlib.metadata.version(PACKAGE)
    path = cache / f"{target}-{digest_of(target, nvrtc_version)}.image"
    if not path.exists():
        image, log = Nvrtc().compile(target)
        usage = usage_of(log)
        spilling = [name for name, kernel in usage.items() if kernel["spilled"]]
        if spilling:
            raise SystemExit(
                f"make_gpu_kernels.py: kernels spill registers on {target}: {', '.join(spilling)}"
            )
        write(path.with_suffix(".json"), json.dumps(usage, indent=1).encode())
        write(path, image)
    path.touch()
    return path


def targets() -> list[str]:
    return [f"sm_{architecture}" for architecture in ARCHITECTURES] + [f"compute_{PTX}"]


def make_images(cache: Path) -> dict[str, Path]:
    cache.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(min(len(targets()), os.cpu_count() or 1)) as pool:
        made = dict(zip(targets(), pool.map(image_of, targets(), [cache] * len(targets())), strict=True))
    for old in sorted(cache.glob("*.image"), key=lambda path: path.stat().st_mtime)[:-CACHE_FILES_MOST]:
        old.with_suffix(".json").unlink(missing_ok=True)
        old.unlink(missing_ok=True)
    return made


def source_of(images: dict[str, Path]) -> str:
    """C++ with the images inside, by the assembler: a compiler would take minutes for as many numbers."""
    lines = ['#include "gpu/kernels/images.hpp"', ""]
    rows = []
    for target, path in images.items():
        kind, _, architecture = target.partition("_")
        name = f"rawduck_gpu_{target}"
        lines += [
            f'asm(".pushsection .rodata; .balign 64; .hidden {name}, {name}_end; "',
            f'    ".global {name}, {name}_end; "',
            f'    "{name}: .incbin \\"{path}\\"; {name}_end: .byte 0; .popsection");',
            f'extern "C" const unsigned char {name}[], {name}_end[];',
        ]
        rows.append(f"        {{{architecture}, {str(kind == 'compute').lower()}, {name}, ")
        rows[-1] += f"static_cast<size_t>({name}_end - {name})}},"
    lines += ["", "namespace rawduck::gpu {", "", "std::vector<KernelImage> KernelImages() {", "    return {"]
    return "\n".join([*lines, *rows, "    };", "}", "", "} // namespace rawduck::gpu", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles rawduck's kernels for GPUs")
    parser.add_argument("--find", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(1)
    if arguments.find:
        print(f"NVRTC {version} for {', '.join(targets())}")
        return
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "images.cpp", source_of(make_images(arguments.cache or folder)).encode())


if __name__ == "__main__":
    main()
