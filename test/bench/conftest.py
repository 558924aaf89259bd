"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True)
def interrupts():
    """Interrupts as at a terminal, also where the tests and what they start would ignore them: a shell's
    background job and some systems of continuous integration begin so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def as_a_user_starts_it(monkeypatch):
    """`rawduck bench` asks by itself for the functions that only tests and benchmarks load."""
    monkeypatch.delenv("RAWDUCK_TEST_FUNCTIONS")
