"""One short history for every day; `make test-full` makes many long ones."""

from __future__ import annotations

import pytest
from full_volumes import run_history
from history import Shape


@pytest.mark.parametrize("seed", ["ci1", "ci2"])
def test_a_full_volume_can_be_emptied(seed, tmp_path):
    counts, broken = run_history(seed, tmp_path, Shape(megabytes=16, lba=4096, databases=2, lives=2, steps=6))
    assert not broken
    assert counts["refused"] > 0


def test_a_checkpoint_has_metadata_for_its_own_blocks(tmp_path):
    """Commits until nothing fits leave it nothing but what is kept, and it has no free block."""
    _, broken = run_history("2.17", tmp_path)
    assert not broken
