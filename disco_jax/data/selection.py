"""Choosing questions by how often they are answered: dynamic sampling and a curriculum.

Both are off in the paper's runs. Both are pure functions, so that a restarted step makes the same
choices.
"""

import functools
from typing import Protocol

import numpy as np

from disco_jax import calls
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


class Order(Protocol):
    """Every question that a step may ask, each once: its own batch first, then the refills."""

    def __call__(self, n_questions: int, batch_size: int, seed: int, step: int) -> np.ndarray: ...


def epochs() -> Order:
    """The step's batch of `order.batch`, then all other questions in an order of this step's own.

    Refills do not move the order of later steps, so a restart needs no count of them.
    """

    def sequence(n_questions: int, batch_size: int, seed: int, step: int) -> np.ndarray:
        own = order.batch(n_questions, batch_size, seed, step)
        mixed = order.permutation(n_questions, seed, step, 1)
        return np.concatenate([own, mixed[~np.isin(mixed, own)]])

    return sequence


def easy_first(p_Q: np.ndarray | None = None, start: float = 0.3, steps: int = 700) -> Order:
    """A curriculum: the easiest questions first, then ever more.

    The pool grows linearly from the easiest `start` of the questions at step 0 to all of them at
    step `steps`; a step draws from it without repetition. These are draws, not epochs: over a run,
    easy questions are seen more often.

    Args:
      p_Q: success rate of each question, as measured beforehand; nan (not measured) counts as 0.5.

    Raises:
      ValueError: no rates, start not in (0, 1), or steps below 1.
    """
    start = calls.number("start", start, above=0, below=1)
    steps = calls.number("steps", steps, least=1)
    if p_Q is None:
        raise ValueError("there are no success rates: name an evaluation in config.data.success")
    ranked = np.argsort(-np.nan_to_num(np.asarray(p_Q, float), nan=0.5), kind="stable")

    def sequence(n_questions: int, batch_size: int, seed: int, step: int) -> np.ndarray:
        share = min(1.0, start + (1 - start) * step / steps)
        pool = max(batch_size, round(share * n_questions))
        return ranked[order.permutation(pool, seed, step, 2)]

    return sequence


def make_order(text: str, p_Q: np.ndarray | None) -> Order:
    """The order named by a call-like string: `epochs` or `easy_first(start=0.3, steps=700)`.

    Raises:
      ValueError: no such order or parameter; or as `easy_first`.
    """
    table = {"epochs": epochs, "easy_first": functools.partial(easy_first, p_Q)}
    return calls.build(text, table, "order")
