"""The kernels as GPUs get them: all of them for every architecture, none of which spills registers."""

from __future__ import annotations

import importlib.metadata
import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAKER = runpy.run_path(str(ROOT / "scripts" / "make_gpu_kernels.py"))
CACHE = ROOT / "build" / "gpu_kernels"


def names_of_kernels() -> set[str]:
    """As the lists of kernels have them."""
    names = {"checksum_blocks"}
    for listed in ("decode/kernels.hpp", "columns/kernels.hpp", "ring/asked_reads.hpp"):
        text = (ROOT / "src" / "gpu" / listed).read_text()
        names |= set(re.findall(r"(?:^    |\(X\) )X\((\w+),", text, re.MULTILINE))
        widths = re.findall(r"^    X\(NAME##(\w+),", text, re.MULTILINE)
        for name in re.findall(r"^    GPU_FIXED_WIDTH_KERNELS\(X, (\w+),", text, re.MULTILINE):
            names |= {name + width for width in widths}
    return names


@pytest.fixture(scope="module")
def images() -> dict[str, Path]:
    try:
        importlib.metadata.version(MAKER["PACKAGE"])
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("NVRTC is not installed: pip install --requirement requirements-gpu.txt")
    return {target: MAKER["image_of"](target, CACHE) for target in MAKER["targets"]()}  # made by the build


def test_all_kernels_are_compiled_for_every_architecture_without_spills(images):
    names = names_of_kernels()
    assert len(names) > 60
    cubins = {target: path for target, path in images.items() if target.startswith("sm_")}
    assert len(cubins) == 7
    for target, path in cubins.items():
        usage = json.loads(path.with_suffix(".json").read_text())
        assert usage.keys() == names, target
        assert {name for name, kernel in usage.items() if kernel["spilled"] > 0} == set(), target
        assert max(kernel["registers"] for kernel in usage.values()) <= 128, target


def test_ptx_for_later_gpus_has_all_kernels(images):
    text = images[f"compute_{MAKER['PTX']}"].read_bytes()
    assert text.endswith(b"\0")
    found = set(re.findall(r"\.entry (\w+)\(", text.decode("ascii", "replace")))
    assert found == names_of_kernels()
    assert ".version 8." in text.decode("ascii", "replace")  # drivers of CUDA 12 on take it


def test_usage_is_read_from_what_the_compiler_says():
    log = """ptxas info    : Compiling entry function 'some' for 'sm_90'
        8 bytes stack frame, 12 bytes spill stores, 4 bytes spill loads
        ptxas info    : Used 40 registers, used 1 barriers"""
    assert MAKER["usage_of"](log) == {"some": {"registers": 40, "spilled": 16}}
