"""pass@1, pass@k and maj@k over questions, each with an interval, and the comparison of two runs.

The question is the unit: the K responses to one question are not independent of one another, so
intervals resample questions with all their responses, never single responses.
"""

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

RESAMPLES = 2_000


def pass_at_1(correct_QK, confidence: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """(mean, low, high): the mean over questions of the share of right answers, and its interval.

    Args:
      correct_QK: 0/1 or bool, K responses to each of Q questions.

    Raises:
      ValueError: not two axes, one of them empty, or values other than 0 and 1.
    """
    return interval(_checked(correct_QK).mean(1), confidence, seed)


def pass_at_k(correct_QK, k: int) -> np.ndarray:
    """Unbiased pass@k of each question, float64 [Q]: the chance that k of the K hold a right one.

    1 - C(K-c, k) / C(K, k) for c right answers of K.

    Raises:
      ValueError: k is not from 1 to K; or as `pass_at_1`.
    """
    correct_QK = _checked(correct_QK)
    n = correct_QK.shape[1]
    if not 1 <= k <= n:
        raise ValueError(f"k={k}: from 1 to the K={n} responses of a question")
    miss = np.array([math.comb(n - c, k) / math.comb(n, k) for c in range(n + 1)])
    return 1.0 - miss[correct_QK.sum(1).astype(int)]


def maj_at_k(
    answers_QK: Sequence[Sequence[Hashable | None]],
    correct_QK,
    k: int | None = None,
    draws: int = 64,
    seed: int = 0,
) -> np.ndarray:
    """Share of right majority votes of each question, float64 [Q].

    All right answers vote as one, however they are written; wrong answers vote by their text;
    None (no answer found) does not vote. A tie is broken by lot, and its expectation returned.

    Args:
      answers_QK: the extracted answers.
      k: voters; all K by default, otherwise the mean over `draws` random subsets of k.
    """
    correct_QK = _checked(correct_QK)
    n = correct_QK.shape[1]
    if k is not None and not 1 <= k <= n:
        raise ValueError(f"k={k}: from 1 to the K={n} responses of a question")
    rng = np.random.default_rng(seed)
    subsets = [range(n)] if k in (None, n) else [rng.permutation(n)[:k] for _ in range(draws)]
    return np.array(
        [
            np.mean([_vote([answers[i] for i in s], [right[i] for i in s]) for s in subsets])
            for answers, right in zip(answers_QK, correct_QK, strict=True)
        ]
    )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Run b against run a on the same questions: b - a, its interval, and a two-sided p-value."""

    difference: float
    low: float
    high: float
    p_value: float


def compare(a_Q, b_Q, confidence: float = 0.95, seed: int = 0) -> Comparison:
    """Paired comparison of one number per question, such as `correct_QK.mean(1)` of two runs.

    The interval is a bootstrap over questions of the differences; the p-value is that of the
    sign-flip permutation test, whose null is that the runs are interchangeable on every question.

    Raises:
      ValueError: the runs do not have the same number of questions.
    """
    a_Q, b_Q = np.asarray(a_Q, float), np.asarray(b_Q, float)
    if a_Q.ndim != 1 or a_Q.shape != b_Q.shape or not len(a_Q):
        raise ValueError(f"shapes {a_Q.shape} and {b_Q.shape}: one number per question, same set")
    delta_Q = b_Q - a_Q
    mean = float(delta_Q.mean())
    low, high = _bootstrap(delta_Q, confidence, seed)
    rng = np.random.default_rng(seed)
    flips = rng.integers(0, 2, (RESAMPLES, len(delta_Q)), np.int8) * 2 - 1
    extreme = np.abs(flips @ delta_Q) / len(delta_Q) >= abs(mean) - 1e-12
    return Comparison(mean, low, high, float((1 + extreme.sum()) / (1 + RESAMPLES)))


def interval(value_Q, confidence: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """(mean, low, high) of one share in [0, 1] per question, for the population it is drawn from.

    Expanded percentile bootstrap over questions (Hesterberg, 2015): percentiles of the resampled
    means, taken as far out as Student's t and the n-1 of the variance ask for, without which few
    questions give too narrow an interval. The same numbers for the same seed. Where all shares are
    0 (or all 1) resampling knows no spread; then the bound is Clopper and Pearson's for 0 of Q.
    """
    value_Q = np.asarray(value_Q, float)
    if value_Q.ndim != 1 or not len(value_Q) or not ((value_Q >= 0) & (value_Q <= 1)).all():
        raise ValueError(f"shape {value_Q.shape}: one share in [0, 1] for each of Q >= 1 questions")
    mean, reach = float(value_Q.mean()), 1 - ((1 - confidence) / 2) ** (1 / len(value_Q))
    if len(value_Q) == 1:
        return mean, 0.0, 1.0
    if not value_Q.any():
        return 0.0, 0.0, reach
    if value_Q.all() and mean == 1.0:
        return 1.0, 1 - reach, 1.0
    return mean, *_bootstrap(value_Q, confidence, seed)


def average(
    values: Sequence[np.ndarray], confidence: float = 0.95, seed: int = 0
) -> tuple[float, float, float]:
    """(mean, low, high) of the unweighted mean over benchmarks, each one share per question.

    The benchmarks are taken as given; questions are resampled within each of them. One that is all
    right or all wrong, in which resampling knows no spread, widens the interval by its own bound.
    """
    parts = [np.asarray(v, float) for v in values]
    if not parts or not all(v.ndim == 1 and len(v) for v in parts):
        raise ValueError(
            f"shapes {[v.shape for v in parts]}: one share for each of Q >= 1 questions"
        )
    rng = np.random.default_rng(seed)
    mean = float(np.mean([v.mean() for v in parts]))
    means = np.full(RESAMPLES, mean)
    below = above = 0.0
    for v in parts:
        one, bottom, top = interval(v, confidence, seed)
        if np.ptp(v) == 0:
            below, above = below + (one - bottom), above + (top - one)
            continue
        drawn = v[rng.integers(0, len(v), (RESAMPLES, len(v)))].mean(1)
        means += (drawn - one) * math.sqrt(len(v) / (len(v) - 1)) / len(parts)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    low, high = low - below / len(parts), high + above / len(parts)
    return mean, max(0.0, float(low)), min(1.0, float(high))


def _bootstrap(value_Q: np.ndarray, confidence: float, seed: int) -> tuple[float, float]:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}: between 0 and 1")
    n = len(value_Q)
    if n == 1:
        return -math.inf, math.inf
    normal = statistics.NormalDist()
    z = normal.inv_cdf((1 + confidence) / 2)
    # Student's quantile by its expansion in 1/(n-1), then the scale of the unbiased variance.
    m = n - 1
    t = z + (z**3 + z) / (4 * m) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * m**2)
    tail = normal.cdf(-t * math.sqrt(n / m))
    rng = np.random.default_rng(seed)
    means = value_Q[rng.integers(0, n, (RESAMPLES, n))].mean(1)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _vote(answers: Sequence[Hashable | None], right: Sequence[bool]) -> float:
    """Probability that the majority is right, ties broken by lot."""
    ballots = Counter(
        (True, "") if good else (False, answer)
        for answer, good in zip(answers, right, strict=True)
        if good or answer is not None
    )
    if not ballots:
        return 0.0
    most = max(ballots.values())
    winners = [ballot for ballot, count in ballots.items() if count == most]
    return sum(good for good, _ in winners) / len(winners)


def _checked(correct_QK) -> np.ndarray:
    array = np.asarray(correct_QK, float)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"correct_QK has shape {array.shape}: Q >= 1 questions, K >= 1 responses")
    if not np.isin(array, (0.0, 1.0)).all():
        raise ValueError("correct_QK holds values other than 0 and 1")
    return array
