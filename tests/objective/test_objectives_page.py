"""docs/objectives.md says what methods.py does."""

import pathlib

from disco_jax.objective.methods import METHODS

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "objectives.md"


def test_the_page_shows_every_row_as_it_is():
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if cells[0] in METHODS:
            rows[cells[0]] = cells[1:]
    slots = ("weight", "score", "length", "surrogate", "penalty", "entropy")
    assert rows == {name: [str(row[slot]) for slot in slots] for name, row in METHODS.items()}


def test_what_the_page_links_to_exists():
    for target in ("../disco_jax/objective/methods.py", "../experiments/fig1a/fig1a.png"):
        assert f"({target})" in PAGE.read_text()
        assert (PAGE.parent / target).exists()
