"""The recipes of docs/INSTALL.md that need no more than a folder."""

from __future__ import annotations

import pytest
from recipes import AFTER, PAGE, run_recipe


@pytest.mark.parametrize("title", AFTER)
def test_recipe(title, tmp_path):
    run_recipe(title, tmp_path, AFTER[title])


def test_one_screen():
    before_recipes = PAGE.read_text().partition("## Recipes")[0].splitlines()
    assert len(before_recipes) <= 25, "the way to the first query is to fit onto one screen"
