"""An objective as a choice of parts, checked when it is built."""

import dataclasses
from collections.abc import Callable

from disco_jax import calls
from disco_jax.objective.penalties import PENALTIES, Penalty
from disco_jax.objective.scores import LENGTHS, SCORES, Score
from disco_jax.objective.surrogates import SURROGATES, Surrogate
from disco_jax.objective.weights import WEIGHTS


@dataclasses.dataclass(frozen=True)
class Objective:
    """Pure functions and plain values; hashable, so it may be a static argument of a jit."""

    weight: Callable  # p_Q, n_Q -> w_Q
    score: Score
    length: Callable  # tokens_QN -> divisor
    surrogate: Surrogate
    penalty: Penalty
    entropy: float
    questions: str

    @property
    def needs_old(self) -> bool:
        return self.score.needs_old or self.penalty.needs_old

    @property
    def needs_ref(self) -> bool:
        return self.score.needs_ref or self.penalty.needs_ref

    @property
    def needs_entropy(self) -> bool:
        return self.entropy != 0

    @property
    def delta(self) -> float | None:
        return self.penalty.delta


def make_objective(
    *,
    weight: str,
    score: str,
    length: str,
    surrogate: str,
    penalty: str,
    entropy: float,
    questions: str = "all",
) -> Objective:
    """Builds an objective from its parts, as a row of `methods.METHODS` names them.

    Args:
      weight, score, length, surrogate, penalty: call-like strings.
      entropy: coefficient of the token-mean entropy in J.
      questions: what J is a mean over. "all": every question of the minibatch, also those without
        a right or without a wrong response (Algorithm 1, the official code); "valid": those with
        both (the paper's p in (0, 1)); "sized": all, each counted as often as it has responses.

    Raises:
      ValueError: an unknown part or parameter, a value out of range, or parts that make no sense
        together. The message names the slot and what is allowed.
    """
    made = Objective(
        weight=calls.build(weight, WEIGHTS, "weight"),
        score=calls.build(score, SCORES, "score"),
        length=calls.build(length, LENGTHS, "length"),
        surrogate=calls.build(surrogate, SURROGATES, "surrogate"),
        penalty=calls.build(penalty, PENALTIES, "penalty"),
        entropy=calls.number("entropy", entropy, least=0.0),
        questions=calls.choice("questions", questions, ("all", "valid", "sized")),
    )
    if made.surrogate.one_sided and made.score.two_sided:
        raise ValueError(
            f"surrogate={surrogate!r} ranks one score per response, but score={score!r} has two, "
            "s+ and s-: take an unclipped score or a pairwise surrogate"
        )
    if made.surrogate.graded and calls.parse(weight).name != "one":
        raise ValueError(
            f"weight={weight!r} is a function of the share of right responses, which graded "
            f"rewards (surrogate={surrogate!r}) do not have: take weight='one'"
        )
    return made
