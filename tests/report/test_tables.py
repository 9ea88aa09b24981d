import io

import pytest

from disco_jax.report import tables
from disco_jax.report.tables import PLAIN, Style

ROLLOUT = {
    "step": 3,
    "question_id": "q7",
    "problem": "What is 2 + 2?",
    "golds": ["4"],
    "responses": [
        {"text": "it is 5", "reward": 0.0, "reason": "not equal", "tokens": 3, "ended": False},
        {"text": "it is 4", "reward": 1.0, "reason": "equal", "tokens": 3, "ended": True},
        {"text": "four", "reward": 1.0, "reason": "equal", "tokens": 1, "ended": True},
    ],
}
BEFORE = {
    "step": 0,
    "eval/pass1": 0.25,
    "eval/pass1_low": 0.23,
    "eval/pass1_high": 0.271,
    "eval/length": 62.0,
    "eval/truncated": 0.08,
    "eval/level/hard": 0.1,
}
AFTER = BEFORE | {"step": 60, "eval/pass1": 0.75, "eval/truncated": 0.1, "eval/level/easy": 0.9}


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def cells(text):
    return [line.split("  ") for line in text.splitlines()]


def test_before_and_after():
    assert tables.before_after(BEFORE, AFTER).splitlines() == [
        "held-out questions                 step 0              step 60        change",
        "pass@1                25.0 % [23.0, 27.1]  75.0 % [23.0, 27.1]  +50.0 points",
        "pass@1, easy                            -               90.0 %",
        "pass@1, hard                       10.0 %               10.0 %   +0.0 points",
        "mean response length                 62.0                 62.0          +0.0",
        "truncated responses                 8.0 %               10.0 %   +2.0 points",
    ]


def test_gains_are_green_and_losses_red_on_a_terminal():
    text = tables.before_after(BEFORE, AFTER, Style(colour=True))
    assert "\x1b[32m+50.0 points\x1b[0m" in text
    assert "\x1b[31m +2.0 points\x1b[0m" in text  # more truncation is a loss
    assert text.count("\x1b[") == 6  # and the heading; no other change is a gain or a loss


@pytest.mark.parametrize("after", [{}, {"step": 1}, {"eval/pass1": float("nan")}])
def test_before_and_after_without_an_after(after):
    text = tables.before_after(BEFORE, after)
    assert "25.0 % [23.0, 27.1]" in text and "nan" not in text


def test_histogram_counts_and_proportions():
    text = tables.histogram({"before": [0, 5, 10], "after": [20, 0, 1]}, width=20)
    assert text.splitlines() == [
        "p(q)         before                   after",
        "  0/2   0.00                       0  #################### 20",
        "  1/2   0.50 #####                 5                        0",
        "  2/2   1.00 ##########           10  #                     1",
    ]


def test_histogram_in_block_characters_keeps_the_columns():
    text = tables.histogram({"a": [1, 3, 7], "b": [7, 0, 2]}, Style(unicode=True), width=9)
    lines = text.splitlines()
    assert len({len(line) for line in lines[1:]}) == 1
    assert lines[3][13:22] == "\u2588" * 9
    assert lines[1][13:15] == "\u2588\u258e"  # 9/7 = 1 and 2.3 eighths


@pytest.mark.parametrize("columns", [{}, {"a": []}, {"a": [1], "b": [1, 2]}])
def test_histogram_refuses_columns_that_do_not_match(columns):
    with pytest.raises(ValueError, match="length"):
        tables.histogram(columns)


def test_histogram_of_nothing_is_still_drawn():
    assert len(tables.histogram({"a": [0, 0, float("nan")]}).splitlines()) == 4


def test_configuration_shows_what_differs_from_the_defaults():
    base = {"steps": 100, "lr": 1e-6, "path": "", "seed": 0}
    config = {"steps": 60, "lr": 1e-6, "path": "x", "seed": 0, "new": True}
    assert tables.configuration(config, base).splitlines() == [
        "* steps  60  (default 100)",
        "* path   x  (default '')",
        "* new    True  (default none)",
    ]
    assert tables.configuration(config, base, every=True).splitlines()[1] == "  lr     1e-06"
    assert tables.configuration(base, base) == "configuration: all defaults"


def test_parameters_are_counted():
    class Leaf:
        dtype = "float32"

        def __init__(self, *shape):
            self.shape = shape

    text = tables.parameters({"layers": {"w": Leaf(2, 3, 4), "b": Leaf(4)}, "scale": Leaf()})
    assert cells(text)[0] == ["layers/w", "2 x 3 x 4", "float32", "24"]
    assert [line.split()[-1] for line in text.splitlines()] == ["24", "4", "1", "29"]


def test_samples_show_a_right_and_a_wrong_response():
    text = tables.samples([ROLLOUT] * 5, count=2)
    assert text.count("question q7") == 2
    assert "2 of 3 right, answer 4" in text
    assert "wrong: 3 tokens, cut off (not equal)\n    it is 5" in text
    assert "right: 3 tokens (equal)\n    it is 4" in text
    assert "four" not in text and "\x1b" not in text


def test_colours_mark_the_verdict():
    text = tables.samples([ROLLOUT], Style(colour=True, unicode=True))
    assert "\x1b[32m  right" in text and "\x1b[31m  wrong" in text


@pytest.mark.parametrize("where", ["problem", "question_id", "text", "reason", "golds"])
def test_hostile_text_cannot_steer_the_terminal(where):
    hostile = "a\x1b[2J\x1b]0;title\x07\u202e\ud800\x9bb"
    first = ROLLOUT["responses"][0] | {where: hostile}
    row = ROLLOUT | {"responses": [first]} | {where: [hostile] if where == "golds" else hostile}
    text = tables.samples([row], Style(unicode=True))
    assert "a\ufffd[2J\ufffd]0;title\ufffd\ufffd\ufffd\ufffdb" in text
    assert not set("\x1b\x07\u202e\ud800\x9b") & set(text)
    text.encode("utf-8")
    assert tables.samples([row], PLAIN).isascii()


@pytest.mark.parametrize("text", ["x" * 1_000_000, "line\n" * 100_000])
def test_long_responses_lose_their_middle(text):
    first = ROLLOUT["responses"][0] | {"text": text + "the end"}
    shown = tables.samples([ROLLOUT | {"responses": [first]}], lines=6)
    assert "the end" in shown and "..." in shown
    assert len(shown) < 2000 and len(shown.splitlines()) < 14


def test_style_follows_the_stream(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Style.of(Terminal()) == Style(colour=True, unicode=True)
    assert Style.of(io.StringIO()) == PLAIN
    monkeypatch.setenv("NO_COLOR", "1")
    assert Style.of(Terminal()) == Style(colour=False, unicode=True)
