"""Answers graded per second and per core: `python benchmarks/grade.py --golds DIR`.

The mix is that of a training step: the golds of the parquet files in DIR, half of the answers
right (spelt in another way), half the gold of another question, behind 11,000 characters of
thinking. No gold is seen twice, so nothing is remembered. Prints one JSON line: processor time per
answer in one process (also of math-verify, where it is installed), and the wall time of a step of
1,024 answers with two workers.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import statistics
import time

import pyarrow.parquet as pq

from disco_jax.reward import Grader, policies
from disco_jax.reward.verdict import Outcome

THINKING = "Let me see. Then $x^2 = 49$ has two roots, but wait. " * 220
STEP = 1024


def pairs(folder: pathlib.Path, seed: int) -> list[tuple[str, tuple[str, ...], int]]:
    """(response, golds, expected) for every row of the files."""
    golds = [
        policies.gold_texts(row["reward_model"]["ground_truth"])
        for path in sorted(folder.glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    rng = random.Random(seed)
    rng.shuffle(golds)
    made = []
    for index, gold in enumerate(golds):
        right = index % 2 == 0
        text = gold[0] if right else golds[index - 1][0]
        text = text.strip().replace("\\frac", "\\dfrac").replace(",", ", ").strip("$")
        if not right and text in gold:
            continue
        made.append((f"<think>\n{THINKING}\n</think>\n\n\\boxed{{{text}}}", gold, int(right)))
    return made


def ours(cases: list) -> dict:
    """Processor time in this process, through both moments of the policy."""
    policy = policies.build("math")
    policy.load()

    def grade(response: str, golds: tuple[str, ...]) -> int:
        look = policy.first_look(response, golds)
        return (look if isinstance(look, Outcome) else policy.judge(look, golds)).reward

    return timed(grade, cases)


def math_verify(cases: list) -> dict | None:
    """The same cases by math-verify, in the way its own documentation uses it."""
    try:
        from math_verify import parse, verify
    except ImportError:
        return None

    def grade(response: str, golds: tuple[str, ...]) -> int:
        answer = parse(response.rpartition("</think>")[2])
        return int(any(verify(parse(f"\\boxed{{{gold.strip()}}}"), answer) for gold in golds))

    return timed(grade, cases)


def timed(grade, cases: list) -> dict:
    spent, right = [], 0
    for response, golds, expected in cases:
        begin = time.process_time()
        reward = grade(response, golds)
        spent.append(time.process_time() - begin)
        right += reward == expected
    cuts = statistics.quantiles(spent, n=100)
    return {
        "answers_per_s_per_core": round(len(spent) / sum(spent), 1),
        "p50_ms": round(1e3 * cuts[49], 3),
        "p99_ms": round(1e3 * cuts[98], 3),
        "max_ms": round(1e3 * max(spent), 1),
        "as_expected": round(right / len(cases), 4),
    }


def step(cases: list, workers: int) -> float:
    """Wall seconds for `STEP` answers, eight to a question, workers warm."""
    rng = random.Random(1)
    questions = rng.sample(cases, STEP // 8)
    texts = [response for response, *_ in cases]
    batch = [
        (response if k % 2 == 0 else rng.choice(texts), golds)
        for response, golds, _ in questions
        for k in range(8)
    ]
    with Grader(workers=workers) as grader:
        grader.grade([("</think>\\boxed{x+1}", f"{k}+x") for k in range(2, 2 + 4 * workers)])
        begin = time.perf_counter()
        grader.grade(batch)
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--golds", type=pathlib.Path, required=True, help="folder of parquet files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cases", type=int, default=10**9, help="at most this many")
    args = parser.parse_args()
    cases = pairs(args.golds, args.seed)[: args.cases]
    row = {
        "benchmark": "grade",
        "cases": len(cases),
        "ours": ours(cases),
        "math_verify": math_verify(cases),
        "step_1024_s": round(step(cases, args.workers), 2),
        "workers": args.workers,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
