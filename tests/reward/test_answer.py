r"""From a response to its final answer: the rules of `answer`, one by one."""

import pytest

from disco_jax.reward.answer import MAX_ANSWER, extract

DONE = "<think>\nw\n</think>\n\n"


@pytest.mark.parametrize(
    ("think", "response", "text", "reason"),
    [
        ("required", "so \\boxed{5}", None, "no_think_close"),
        ("required", "w</think>\\boxed{5}", "5", ""),
        ("required", "\\boxed{4}</think>", None, "no_box"),
        ("required", "a</think>\\boxed{4}</think>\\boxed{5}", "5", ""),
        ("required", "a</think>\\boxed{4}</think>", None, "no_box"),
        ("required", "a</THINK>\\boxed{5}", None, "no_think_close"),
        ("auto", "so \\boxed{5}", "5", ""),
        ("auto", "<think>so \\boxed{5}", None, "no_think_close"),
        ("auto", "a</think>\\boxed{5}", "5", ""),
        ("none", "so \\boxed{5}", "5", ""),
        ("none", "<think>\\boxed{5}", "5", ""),
        ("none", "\\boxed{4}</think> done", "4", ""),
    ],
)
def test_final_part(think, response, text, reason):
    assert extract(response, think) == (text, reason)


@pytest.mark.parametrize(
    ("part", "text", "reason"),
    [
        ("\\boxed{4} then \\boxed{5}", "5", ""),
        ("\\boxed{4} then \\fbox{5}", "5", ""),
        ("\\boxed{\\boxed{5}}", "5", ""),
        ("\\boxed{\\text{so } \\fbox{5}}", "5", ""),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", ""),
        ("\\boxed{\\frac{1}{2}}}", "\\frac{1}{2}", ""),
        ("\\boxed{\\{1,2\\}}", "\\{1,2\\}", ""),
        ("\\boxed{\\left\\{x=1\\right.}", "\\left\\{x=1\\right.", ""),
        ("\\boxed {5}", "5", ""),
        ("\\boxed\n{\n5\n}", "5", ""),
        ("\\boxed 5.", "5", ""),
        ("\\boxed 12, done", "12", ""),
        ("\\boxed\\frac{1}{2}", "\\frac{1}{2}", ""),
        ("\\boxed{5} or \\boxed{}", "5", ""),
        ("\\boxed{5} or \\boxed{ }", "5", ""),
        ("\\boxed{} and \\boxed{ }", None, "empty_answer"),
        ("\\boxed{5} then \\boxed{6", None, "unterminated_box"),
        ("\\boxed{\\frac{1}{2}", None, "unterminated_box"),
        ("\\boxed", None, "unterminated_box"),
        ("\\boxedness{5}", None, "empty_answer"),
        ("the answer is 5", None, "no_box"),
        ("", None, "no_box"),
        ("\\boxed{" + "7" * (MAX_ANSWER + 1) + "}", None, "too_long"),
        ("\\boxed{5" + " " * 9_999 + "}", "5", ""),
    ],
)
def test_box(part, text, reason):
    assert extract(DONE + part) == (text, reason)


def test_long_hostile_responses_cost_linear_time():
    """A million characters of each; a quadratic scan would not come back."""
    for piece in ("\\boxed{", "\\boxed{}", "\\boxed{6}", "{", "}", "\\", "\\boxed ", "</think>"):
        text, _ = extract(DONE + piece * (1_000_000 // len(piece)))
        assert text in (None, "6", "\\boxed", "\\boxed{}"), piece
