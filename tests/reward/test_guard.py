"""Golds that cannot be graded are found at the door; a first batch without reward stops the run."""

import pytest

from disco_jax.reward import Verdict, self_check
from disco_jax.reward.guard import boxed, refuse_all_zero


def test_good_golds_pass():
    assert self_check(["5", 142.0, ["x+1", "1+x\n"], "$(1,2)$", "\\text{east}", "1,234"]) == []


def test_ungradable_golds_are_named():
    found = self_check(["5", "", ["6", " "], [], "\\frac{1", "}{"])
    assert [(u.index, u.gold) for u in found] == [
        (1, ""),
        (2, " "),
        (3, ""),
        (4, "\\frac{1"),
        (5, "}{"),
    ]
    assert found[3].reason == "unterminated_box"


def test_large_sets_are_sampled_by_seed():
    golds = ["5"] * 90 + [""] * 10
    whole = self_check(golds)
    part = self_check(golds, sample=50, seed=1)
    assert len(whole) == 10
    assert {u.index for u in part} < {u.index for u in whole}
    assert part == self_check(golds, sample=50, seed=1)


def test_the_policy_decides_what_is_gradable():
    assert self_check(["B", "12"], "choice")[0].gold == "12"
    assert self_check(["B", "12"], "exact") == []


def test_a_first_batch_without_reward_stops_and_says_what_to_check():
    zeros = [Verdict(0, "no_think_close", 0.0)] * 3 + [Verdict(0, "unreadable: x", 0.0)]
    with pytest.raises(ValueError, match="think='none'") as error:
        refuse_all_zero(zeros, "math")
    assert "3 x no_think_close" in str(error.value)
    refuse_all_zero([*zeros, Verdict(1, "equal", 0.0)], "math")


def test_boxed_is_the_form_every_policy_reads():
    assert boxed("5").endswith("\\boxed{5}.")
