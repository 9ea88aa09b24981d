"""Every objective once more, as plain loops over questions, responses and tokens.

Written from the equations, in Python floats, with none of the package's code: slow and obvious.
"""

import math


def responses(logp, batch, q):
    """The question's responses as dicts of token lists, padding dropped."""
    found = []
    for n in range(len(batch.mask_QNT[q])):
        tokens = [t for t, inside in enumerate(batch.mask_QNT[q][n]) if inside]
        if tokens:
            pick = {"new": logp, "old": batch.logp_old_QNT, "ref": batch.logp_ref_QNT}
            found.append({k: [float(x[q][n][t]) for t in tokens] for k, x in pick.items()})
            found[-1]["reward"] = float(batch.reward_QN[q][n])
    return found


def token_score(score, new, old, ref, right):
    ratio = math.exp(new - old)
    if score == "log_l":
        return new
    if score == "l_ratio":
        return ratio
    if score == "log_ratio_ref":
        return new - ref
    low, high = score
    return min(ratio, 1 + high) if right else max(ratio, 1 - low)


def question(group, weight, score, divisor, surrogate):
    """w(p) D(s+, s-), or None where there is nothing to compare."""
    s = []
    for o in group:
        tokens = zip(o["new"], o["old"], o["ref"], strict=True)
        total = sum(token_score(score, *t, o["reward"] > 0.5) for t in tokens)
        s.append(total / divisor(o, group))
    plus = [x for x, o in zip(s, group, strict=True) if o["reward"] > 0.5]
    minus = [x for x, o in zip(s, group, strict=True) if o["reward"] <= 0.5]
    if not plus or not minus:
        return None
    p = len(plus) / len(group)
    return weight(p) * surrogate(plus, minus)


def pair_mean(ell):
    return lambda plus, minus: sum(ell(a - b) for a in plus for b in minus) / len(plus) / len(minus)


def j2(tau):
    def surrogate(plus, minus):
        terms = []
        for a in plus:
            terms.append(-tau * math.log(sum(math.exp((b - a) / tau) for b in minus) / len(minus)))
        return sum(terms) / len(terms)

    return surrogate


def k1_old(groups):
    d = [o - n for g in groups for r in g for o, n in zip(r["old"], r["new"], strict=True)]
    return sum(d) / len(d)


def k3_ref(groups):
    d = [f - n for g in groups for r in g for f, n in zip(r["ref"], r["new"], strict=True)]
    return sum(math.exp(x) - 1 - x for x in d) / len(d)


def hinge(groups):
    return 1e3 * max(k1_old(groups) - 1e-4, 0) ** 2


def own(o, group):
    return len(o["new"])


def mean_length(o, group):
    return sum(len(r["new"]) for r in group) / len(group)


STD, ONE, VAR = (lambda p: math.sqrt(p * (1 - p))), (lambda p: 1), (lambda p: p * (1 - p))
GAP = pair_mean(lambda s: s)
LOGISTIC = pair_mean(lambda s: -math.log1p(math.exp(-0.1 * s)))
ROWS = {  # weight, score, divisor, surrogate, penalty
    "grpo": (STD, (0.2, 0.2), own, GAP, lambda g: 1e-3 * k3_ref(g)),
    "grpo_er": (STD, (0.2, 0.2), own, GAP, lambda g: 1e-3 * k3_ref(g)),
    "grpo_rw": (ONE, (0.2, 0.2), own, GAP, lambda g: 1e-3 * k3_ref(g)),
    "dr_grpo": (VAR, (0.2, 0.2), lambda o, g: 1, GAP, lambda g: 0),
    "dapo": (STD, (0.2, 0.28), mean_length, GAP, lambda g: 0),
    "gpg": (VAR, "log_l", mean_length, GAP, lambda g: 0),
    "trpa": (ONE, "log_ratio_ref", lambda o, g: 1, LOGISTIC, lambda g: 1e-3 * k1_old(g)),
    "disco_b_logl": (ONE, "log_l", own, GAP, hinge),
    "disco_b_lratio": (ONE, "l_ratio", own, GAP, hinge),
    "disco_logl": (ONE, "log_l", own, j2(10.0), hinge),
    "disco_lratio": (ONE, "l_ratio", own, j2(1.0), hinge),
}


def loss(name, logp, batch, entropy, questions):
    """The loss of a row of the table; `questions` as in make_objective."""
    weight, score, divisor, surrogate, penalty = ROWS[name]
    groups = [g for q in range(len(logp)) if (g := responses(logp, batch, q))]
    values = [question(g, weight, score, divisor, surrogate) for g in groups]
    counts = {
        "all": [1 for _ in groups],
        "valid": [int(v is not None) for v in values],
        "sized": [len(g) for g in groups],
    }[questions]
    gained = sum(c * (v or 0) for c, v in zip(counts, values, strict=True))
    result = penalty(groups) - gained / max(sum(counts), 1)
    if name == "grpo_er":
        inside = entropy[batch.mask_QNT]
        result -= 1e-3 * sum(inside) / len(inside)
    return result
