"""Choosing questions by how often they are answered: dynamic sampling and a curriculum.

Both are off in the paper's runs. Both are pure functions, so that a restarted step makes the same
choices.
"""

import numpy as np

from disco_jax.data import order


def informative(reward_QN: np.ndarray, valid_QN: np.ndarray | None = None) -> np.ndarray:
    """bool [Q]: questions with a right and a wrong answer, 0 < p(q) < 1; the others teach nothing.

    Args:
      reward_QN: 1 correct, 0 wrong.
      valid_QN: bool, responses that exist; all by default.
    """
    right_QN = np.asarray(reward_QN) == 1
    valid_QN = np.ones_like(right_QN) if valid_QN is None else np.asarray(valid_QN, bool)
    return (right_QN & valid_QN).any(1) & (~right_QN & valid_QN).any(1)


def candidates(n_questions: int, batch_size: int, seed: int, step: int, refill: int) -> np.ndarray:
    """Questions to sample for a step of dynamic sampling, int64, at most [batch_size].

    `refill=0` is the step's own batch of `order.batch`; refill 1, 2, ... are further questions,
    all different from one another and from the batch, and fewer or none once all are used up.
    Refills do not move the order of later steps, so a restart needs no count of them.
    """
    own = order.batch(n_questions, batch_size, seed, step)
    if refill == 0:
        return own
    mixed = order.permutation(n_questions, seed, step, 1)
    others = mixed[~np.isin(mixed, own)]
    return others[(refill - 1) * batch_size : refill * batch_size]


def choose(informative_C: np.ndarray, need: int) -> np.ndarray:
    """Positions of the questions to train on among C sampled candidates, int64 [need].

    The first informative ones; where there are too few, the first of the rest fill the places
    (their gradient is zero), because the shape of a batch is fixed.

    Raises:
      ValueError: C < need.
    """
    informative_C = np.asarray(informative_C, bool)
    if len(informative_C) < need:
        raise ValueError(f"{len(informative_C)} candidates for {need} places")
    ranked = np.argsort(~informative_C, kind="stable")
    return np.sort(ranked[:need])


def curriculum(
    p_Q: np.ndarray,
    batch_size: int,
    seed: int,
    step: int,
    steps: int,
    start: float = 0.3,
    full: float = 0.5,
) -> np.ndarray:
    """Indices of a step's questions, int64 [batch_size]: the easiest first, then ever more.

    The pool grows linearly from the easiest `start` of the questions at step 0 to all of them at
    `full` of the run; a step draws from it without repetition. These are draws, not epochs:
    over a run, easy questions are seen more often.

    Args:
      p_Q: success rate of each question, as measured beforehand; nan (not measured) counts as 0.5.

    Raises:
      ValueError: shares out of range, or fewer questions than the batch.
    """
    n = len(p_Q)
    if not (0 < start <= 1 and 0 < full <= 1) or batch_size > n or not 0 <= step < steps:
        raise ValueError(
            f"start={start}, full={full}, batch_size={batch_size} of {n}, step={step} of {steps}: "
            "shares in (0, 1], the batch no larger than the set, steps from 0"
        )
    share = min(1.0, start + (1 - start) * step / (full * steps))
    pool = max(batch_size, round(share * n))
    easiest = np.argsort(-np.nan_to_num(np.asarray(p_Q, float), nan=0.5), kind="stable")[:pool]
    return easiest[order.permutation(pool, seed, step, 2)[:batch_size]]
