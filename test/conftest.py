"""For every test that pytest runs, and the processes that it starts."""

from __future__ import annotations

import os

# nvme_simulate() and nvme_random_reads(), which users do not get (CONTRIBUTING.md).
os.environ["RAWDUCK_TEST_FUNCTIONS"] = "1"
