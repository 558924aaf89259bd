"""Tests of tables on the GPU run on the emulated device, and with the checker in place of NVIDIA's driver.
With RAWDUCK_TEST_GPU=0 (make gpu-check) they run on a GPU instead."""

from __future__ import annotations

import os

import cuda_memory
import pytest

GPU = os.environ.get("RAWDUCK_TEST_GPU")
if GPU is None and cuda_memory.CHECKER.exists():
    os.environ["RAWDUCK_TEST_LIBCUDA"] = str(cuda_memory.CHECKER)
DEVICES = ["emulated", "checker"] if GPU is None else ["gpu"]


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """What RAWDUCK_GPU says meanwhile."""
    if request.param == "checker" and not cuda_memory.CHECKER.exists():
        pytest.skip("scripts/run_tests.py sql builds the checker of driver calls")
    monkeypatch.setenv("RAWDUCK_GPU", {"checker": "0", "gpu": GPU}.get(request.param, "emulated"))
    return request.param
