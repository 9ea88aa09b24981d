"""The labelled answers, the hostile ones, and the golds of the six benchmarks."""

import collections
import json
import os
import pathlib

import pytest

from disco_jax import grade
from disco_jax.reward import Grader, self_check
from disco_jax.reward.guard import boxed

HERE = pathlib.Path(__file__).parent
BENCHMARKS = HERE.parents[2] / "shared" / "benchmarks"


def lines(name):
    return [json.loads(line) for line in (HERE / "data" / name).read_text().splitlines()]


def test_labelled_answers():
    """Clear labels at least 0.99, no false positive; every class at least 0.95; the debatable
    ones by the conventions of `compare`."""
    cases = lines("labelled.jsonl")
    responses = [c["response"] if "response" in c else boxed(c["answer"]) for c in cases]
    with Grader() as grader:
        found = grader.grade(zip(responses, (c["gold"] for c in cases), strict=True))
    right, total = collections.Counter(), collections.Counter()
    paid = []
    for case, verdict in zip(cases, found, strict=True):
        total[case["class"]] += 1
        right[case["class"]] += verdict.reward == case["expected"]
        if verdict.reward > case["expected"]:
            paid.append(case["id"])
    clear = [name for name in total if name != "convention"]
    assert not paid
    assert sum(right[c] for c in clear) >= 0.99 * sum(total[c] for c in clear)
    assert {c for c in total if right[c] < 0.95 * total[c]} == set()


@pytest.mark.multiprocess
def test_hostile_answers():
    """As labelled, none stopped by a bound, no code run, and the process right afterwards."""
    cases = lines("attack.jsonl")
    health = [("5", "5", 1), ("6", "5", 0), ("x+1", "1+x", 1), ("x+1", "x+2", 0)]
    with Grader(workers=1, memory_mib=512) as grader:
        verdicts = grader.grade((grade.text_of(case["response"]), case["gold"]) for case in cases)
        after = grader.grade((boxed(answer), gold) for answer, gold, _ in health)
    wrong = [c["id"] for c, v in zip(cases, verdicts, strict=True) if v.reward != c["expected"]]
    assert wrong == []
    assert {v.reason for v in verdicts} & {"timeout", "memory", "crash"} == set()
    assert [v.reward for v in after] == [expected for *_, expected in health]
    assert not os.path.exists(grade.CANARY)


@pytest.mark.skipif(not BENCHMARKS.exists(), reason=f"no benchmark files at {BENCHMARKS}")
def test_golds_of_the_benchmarks_match_themselves():
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        row["reward_model"]["ground_truth"]
        for path in sorted(BENCHMARKS.glob("*.parquet"))
        for row in parquet.read_table(path).to_pylist()
    ]
    assert len(rows) == 1590
    assert sum(len(gold) if isinstance(gold, list) else 1 for gold in rows) == 1669
    assert self_check(rows) == []
