"""Filters: what goes, what stays, and that the two add up."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_jax.data import card, filters
from disco_jax.data.arithmetic import arithmetic
from disco_jax.reward import self_check
from disco_jax.types import Question

LONG = (
    "Let $ABC$ be a triangle with $AB = 13$, $BC = 14$ and $CA = 15$. Find the radius of the "
    "circle through the midpoints of its sides, as a common fraction."
)
BOILERPLATE = (
    " The answer can be written as $\\frac{m}{n}$, where $m$ and $n$ are relatively prime positive "
    "integers. Find $m+n$."
)


def question(problem, gold="1", name="q"):
    return Question(name, problem, (gold,))


def test_duplicates_are_found_behind_case_spacing_and_latex_dressing():
    same = LONG.replace("$ABC$", "\\(ABC\\)").upper().replace(" ", "  ")
    kept, dropped = filters.duplicates(
        [
            question(LONG, name="a"),
            question(LONG.replace("$", ""), name="b"),
            question(LONG, "2", "c"),
        ]
    )
    assert [q.id for q in kept] == ["a"]
    assert [(d.where, d.kind) for d in dropped] == [
        ("b", "duplicate"),
        ("c", "duplicate with another answer"),
    ]
    assert filters.words(same.replace("\\(", "").replace("\\)", "")) == filters.words(LONG)


def test_other_numbers_are_another_question():
    kept, _ = filters.duplicates([question("What is 3+4?"), question("What is 3+5?")])
    assert len(kept) == 2


@pytest.mark.parametrize(
    "problem, caught",
    [
        (LONG, True),
        ("In the plane, " + LONG[0].lower() + LONG[1:] + " Give it in lowest terms.", True),
        (LONG[: len(LONG) * 3 // 4], True),
        ("Let $ABC$ be a triangle with right angle at $C$. Show a formula for its area.", False),
        ("Compute 3+4.", False),
    ],
)
def test_overlap_catches_reworded_copies_and_parts(problem, caught):
    kept, dropped = filters.overlap([question(problem)], [question(LONG, name="bench/3")])
    assert (len(kept), len(dropped)) == (not caught, caught)
    assert not caught or "bench/3" in dropped[0].detail


def test_common_closing_formulas_are_no_overlap():
    a = question(LONG + BOILERPLATE)
    b = question(
        "A fair coin is tossed until two heads come up in a row, and then a die is rolled as often "
        "as it was tossed; consider the probability that no six is seen." + BOILERPLATE
    )
    assert filters.overlap([a], [b])[1] == []


def test_short_questions_overlap_only_if_equal():
    bench = [question("Compute 3+4.")]
    assert filters.overlap([question("compute $3 + 4$")], bench)[0] == []
    assert len(filters.overlap([question("Compute 3+5.")], bench)[0]) == 1


def digits_only(golds):
    return [(i, g, "no number") for i, gs in enumerate(golds) for g in gs if not g.isdigit()]


def test_the_graders_own_self_check_fits():
    questions = [question("a", r"\frac{1}{2}"), question("b", "42"), question("c", r"\frac{1}")]
    kept, dropped = filters.ungradable(questions, functools.partial(self_check, policy="numeric"))
    assert [q.problem for q in kept] == ["a", "b"] and len(dropped) == 1


def test_ungradable_answers_go_unless_one_of_them_is_readable():
    pair = [Question("a", "p", ("x", "7")), Question("b", "p2", ("x",))]
    kept, dropped = filters.ungradable(pair, digits_only)
    assert [q.id for q in kept] == ["a"] and dropped[0].kind == "ungradable answer"


def test_long_prompts_go_whole():
    kept, dropped = filters.too_long([question("12345"), question("123456")], list, 5)
    assert [q.problem for q in kept] == ["12345"]
    assert dropped == [filters.Dropped("q", "prompt over 5 tokens", "6 tokens")]


def test_difficulty_filter_keeps_what_was_not_measured():
    four = [question(str(i), name=str(i)) for i in range(4)]
    rates = {"0": 0.0, "1": 0.5, "2": 1.0}
    kept, dropped = filters.by_success(four, rates, low=0.1, high=0.9)
    assert [q.id for q in kept] == ["1", "3"]
    assert [d.kind for d in dropped] == ["too hard", "too easy"]


@given(
    st.lists(st.sampled_from(["1+1", "1 + 1", LONG, "long " * 30, "what?", ""]), max_size=12),
    st.integers(1, 60),
)
def test_kept_and_dropped_add_up_in_order(problems, limit):
    questions = [question(p, name=str(i)) for i, p in enumerate(problems)]
    parts = (
        filters.duplicates,
        functools.partial(filters.overlap, benchmarks=[question(LONG)]),
        functools.partial(filters.ungradable, check=digits_only),
        functools.partial(filters.too_long, encode=list, limit=limit),
    )
    kept, dropped = questions, []
    for part in parts:
        kept, more = part(kept)
        dropped += more
    assert sorted([int(q.id) for q in kept] + [int(d.where) for d in dropped]) == list(
        range(len(problems))
    )
    assert [int(q.id) for q in kept] == sorted(int(q.id) for q in kept)
    for part in parts:
        assert part(kept) == (kept, [])


def test_report_counts_kinds_and_names_examples():
    dropped = [filters.Dropped(f"s/{i}", "duplicate", "of s/0") for i in range(1, 6)]
    text = filters.report([filters.Dropped("s/9", "no answer"), *dropped])
    assert text.splitlines() == [
        "dropped      5  duplicate: s/1 (of s/0), s/2 (of s/0), s/3 (of s/0), ...",
        "dropped      1  no answer: s/9",
    ]
    assert filters.report([]) == "nothing dropped"


@pytest.mark.parametrize(
    "gold, kind",
    [
        ("42", "integer"),
        ("-1,000", "integer"),
        ("$5$", "integer"),
        ("3.5", "decimal"),
        (r"\frac{1}{2}", "fraction"),
        ("3/4", "fraction"),
        (r"\left( 3, \frac{\pi}{2} \right)", "tuple or interval"),
        ("[0, 1)", "tuple or interval"),
        ("1,2", "several"),
        ("Monday", "words"),
        (r"\text{even}", "words"),
        (r"2\sqrt{3}", "expression"),
        ("x^2+1", "expression"),
    ],
)
def test_kinds_of_answers(gold, kind):
    assert card.kind(gold) == kind


def test_card_shows_rows_lengths_levels_and_kinds():
    questions = arithmetic("train", 50)
    text = card.card(questions, "arithmetic", [7] * 50)
    assert text.startswith("arithmetic: 50 questions")
    assert "median 7 (5-95 %: 7-7, longest 7) tokens" in text
    assert "integer 50" in text and "1 10, 2 10, 3 10, 4 10, 5 10" in text
    with pytest.raises(ValueError, match="50 questions with 2 prompt lengths"):
        card.card(questions, "x", [1, 2])
    with pytest.raises(ValueError, match="0 questions"):
        card.card([], "x")
