"""Every mutation of `make test-mutation` still fits the source."""

from __future__ import annotations

from pathlib import Path

from mutation_check import MUTATIONS

VOLUME = Path(__file__).resolve().parents[2] / "src" / "volume"


def test_mutations_fit_the_source():
    counts = {m.name: (VOLUME / m.file).read_text().count(m.old) for m in MUTATIONS}
    assert counts
    assert {name: count for name, count in counts.items() if count != 1} == {}
