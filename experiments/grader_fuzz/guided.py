"""Coverage-guided search for an answer that breaks the grader; needs the package atheris.

    PYTHONPATH=. python experiments/grader_fuzz/guided.py OUT.json CORPUS -max_total_time=60

Runs the two moments of the `math` policy, and the official one, in this process. Every exception
that escapes is a crash of libFuzzer's kind (the input is kept); the input that took most processor
time, and all above `SLOW_S`, go to OUT.json. CORPUS is a folder that later runs start from.
"""

import json
import pathlib
import random
import resource
import sys
import time

import atheris

with atheris.instrument_imports(include=["disco_jax.reward"]):
    from disco_jax.reward import answer, official, policies
    from disco_jax.reward.guard import boxed
    from disco_jax.reward.verdict import Outcome
    from disco_jax.reward.worker import RECURSION

SLOW_S = 0.5
EVERY = 100  # executions between reports
DATA = pathlib.Path(__file__).parents[2] / "tests" / "reward" / "data" / "labelled.jsonl"
PIECES = (
    r"\frac \sqrt \left( \right) ( ) [ ] { } \{ \} | , ; : = < > \le \in \pm + - * / ^ _ ! "
    r"\% $ ' . 0 1 2 7 10 0.5 1,000 1e5 x y n i \pi \infty \text{ or and cm \sin \log \ln "
    r"\lfloor \rfloor \cup \setminus \mathbb{R} \binom \pmod \equiv \sum_{k=1}^{n} & \\ ² √ π ∞ "
    r"\begin{pmatrix} \end{pmatrix} \overline \hat{ \circ \boxed{ \! ~ \frac{1}{2} \sqrt{2} ± ≤ "
    r"° − × ５ é".split(" ")
)


class Record:
    """What has been run so far."""

    def __init__(self, path: str):
        self.path = pathlib.Path(path)
        self.executions = 0
        self.paid = 0
        self.slow: list[tuple[float, str, str]] = []
        self.slowest = (0.0, "", "")
        self.begin = time.time()

    def add(self, seconds: float, text: str, gold: str, reward: int) -> None:
        self.executions += 1
        self.paid += reward
        case = (round(seconds, 3), text, gold)
        self.slowest = max(self.slowest, case)
        if seconds > SLOW_S:
            self.slow.append(case)
        if self.executions % EVERY == 0:
            self.write()

    def write(self) -> None:
        row = {
            "executions": self.executions,
            "paid": self.paid,
            "wall_s": round(time.time() - self.begin),
            "slowest": self.slowest,
            "slow": sorted(self.slow, reverse=True)[:20],
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        self.path.write_text(json.dumps(row, indent=1) + "\n")


def golds() -> list[str]:
    lines = [json.loads(line) for line in DATA.read_text().splitlines()]
    return [line["gold"] for line in lines if isinstance(line["gold"], str) and line["gold"]]


def text_from(data: atheris.FuzzedDataProvider) -> str:
    """Pieces of mathematics, or any characters, as the bytes decide."""
    parts = []
    for _ in range(data.ConsumeIntInRange(0, 20)):
        kind = data.ConsumeIntInRange(0, 15)
        if kind == 0:
            parts.append(data.ConsumeUnicodeNoSurrogates(8))
        elif kind == 1:
            parts.append(data.PickValueInList(PIECES) * data.ConsumeIntInRange(1, 400))
        else:
            parts.append(data.PickValueInList(PIECES) + " " * (kind % 2))
    return "".join(parts)


def main() -> None:
    record = Record(sys.argv.pop(1))
    policy = policies.build("math")
    policy.load()
    official.grade(r"\frac{x}{2}", ("0.5x",))  # it loads its library with the first answer
    wanted = golds()
    rng = random.Random(0)
    rng.shuffle(wanted)

    def one(raw: bytes) -> None:
        data = atheris.FuzzedDataProvider(raw)
        gold = wanted[data.ConsumeIntInRange(0, len(wanted) - 1)]
        text = text_from(data)
        if data.ConsumeBool():
            cut = data.ConsumeIntInRange(0, len(gold))
            text = gold[:cut] + text + gold[cut:]
        begin = time.process_time()
        answer.extract(text, "none")
        look = policy.first_look(boxed(text), (gold,))
        outcome = look if isinstance(look, Outcome) else policy.judge(look, (gold,))
        official.grade(text, (gold,))
        record.add(time.process_time() - begin, text, gold, outcome.reward)

    sys.setrecursionlimit(RECURSION)
    atheris.Setup([*sys.argv, "-timeout=20", "-max_len=300", "-rss_limit_mb=2048"], one)
    try:
        atheris.Fuzz()
    finally:
        record.write()


if __name__ == "__main__":
    main()
