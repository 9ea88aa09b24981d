"""The grader's hypothesis tests for as long as wanted: `python long.py SECONDS SEED OUT.json`.

Each round takes every test of tests/reward/test_grader_fuzz.py under another seed. A failure is
printed with its shrunk example and the run goes on. Counts and times go to OUT.json.
"""

import json
import pathlib
import resource
import sys
import time
import traceback

import hypothesis

EXAMPLES = 100  # of each test in a round
TESTS = pathlib.Path(__file__).parents[2] / "tests" / "reward"


def main() -> None:
    seconds, seed, out = float(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    hypothesis.settings.register_profile(
        "long",
        deadline=None,
        max_examples=EXAMPLES,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("long")
    sys.path.insert(0, str(TESTS))
    import test_grader_fuzz as tests

    slowest = count(tests)
    named = [value for name, value in vars(tests).items() if name.startswith("test_")]
    failures, begin, rounds = [], time.time(), 0
    while time.time() - begin < seconds:
        for test in named:
            try:
                hypothesis.seed(seed + rounds)(test)()
            except Exception:
                failures.append(traceback.format_exc(limit=-1))
                print(failures[-1], flush=True)
        rounds += 1
        row = {
            "seed": seed,
            "rounds": rounds,
            "judged": slowest["judged"],
            "paid": slowest["paid"],
            "wall_s": round(time.time() - begin),
            "failures": failures,
            "slowest": sorted(slowest["cases"], reverse=True)[:10],
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        out.write_text(json.dumps(row, indent=1) + "\n")


def count(tests) -> dict:
    """Counts and times what the tests judge."""
    record = {"judged": 0, "paid": 0, "cases": []}
    judge = tests.POLICY.judge

    def judged(text, golds):
        begin = time.process_time()
        outcome = judge(text, golds)
        spent = time.process_time() - begin
        record["judged"] += 1
        record["paid"] += outcome.reward
        if spent > 0.1:
            record["cases"].append((round(spent, 3), text, golds[0]))
        return outcome

    object.__setattr__(tests.POLICY, "judge", judged)
    return record


if __name__ == "__main__":
    main()
