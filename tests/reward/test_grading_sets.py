"""The labelled answers, the hostile ones, and the golds of the six benchmarks."""

import asyncio
import collections
import json
import os
import pathlib
import threading

import pytest

from disco_jax import grade
from disco_jax.reward import Grader, self_check
from disco_jax.reward.guard import boxed

HERE = pathlib.Path(__file__).parent
BENCHMARKS = HERE.parents[2] / "shared" / "benchmarks"


LABELLED = ("labelled.jsonl", "own.jsonl")  # own: written before the grader was run on them
HOSTILE = ("attack.jsonl", "own_attack.jsonl")


def lines(*names):
    texts = [(HERE / "data" / name).read_text() for name in names]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def pairs(cases):
    for case in cases:
        answer = case.get("answer")
        yield grade.text_of(case["response"]) if answer is None else boxed(answer), case["gold"]


@pytest.fixture(scope="module")
def found():
    """The verdicts of all sets, from the main thread."""
    with Grader(memory_mib=512) as grader:
        return grader.grade(pairs(lines(*LABELLED, *HOSTILE)))


def test_labelled_answers(found):
    """Clear labels at least 0.99, no false positive; every class at least 0.95; the debatable
    ones by the conventions of `compare`."""
    right, total = collections.Counter(), collections.Counter()
    paid = []
    for case, verdict in zip(lines(*LABELLED), found, strict=False):
        total[case["class"]] += 1
        right[case["class"]] += verdict.reward == case["expected"]
        if verdict.reward > case["expected"]:
            paid.append(case["id"])
    clear = [name for name in total if name != "convention"]
    assert not paid
    assert sum(right[c] for c in clear) >= 0.99 * sum(total[c] for c in clear)
    assert {c for c in total if right[c] < 0.95 * total[c]} == set()


@pytest.mark.multiprocess
def test_hostile_answers(found):
    """As labelled, none stopped by a bound, no code run, and the process right afterwards."""
    cases = lines(*HOSTILE)
    verdicts = found[-len(cases) :]
    health = [("5", "5", 1), ("6", "5", 0), ("x+1", "1+x", 1), ("x+1", "x+2", 0)]
    with Grader(workers=1) as grader:
        after = grader.grade((boxed(answer), gold) for answer, gold, _ in health)
    wrong = [c["id"] for c, v in zip(cases, verdicts, strict=True) if v.reward != c["expected"]]
    assert wrong == []
    assert {v.reason for v in verdicts} & {"timeout", "memory", "crash"} == set()
    assert [v.reward for v in after] == [expected for *_, expected in health]
    assert not os.path.exists(grade.CANARY)


def in_thread(grader, given):
    verdicts = []
    thread = threading.Thread(target=lambda: verdicts.extend(grader.grade(given)))
    thread.start()
    thread.join()
    return verdicts


def in_asyncio(grader, given):
    async def gather():
        return await asyncio.gather(*(asyncio.wrap_future(grader.submit(*p)) for p in given))

    return asyncio.run(gather())


@pytest.mark.multiprocess
@pytest.mark.parametrize("place", [in_thread, in_asyncio])
def test_same_verdicts_everywhere(found, place):
    """A fresh grader, so nothing is remembered: rewards and reasons as from the main thread."""
    with Grader(memory_mib=512) as grader:
        there = place(grader, pairs(lines(*LABELLED, *HOSTILE)))
    assert [v[:2] for v in there] == [v[:2] for v in found]


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
