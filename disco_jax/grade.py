"""Grades a file of answers: `python -m disco_jax.grade FILE.jsonl > verdicts.jsonl`.

Each line is a JSON object with `gold` (a string, a number or a list of acceptable ones) and either
`response` (all a model wrote) or `answer` (the content of its final box), and an optional `id`.
A `response` may be a recipe, which is how test files spell very long texts: a list is joined,
{"repeat": [recipe, n]}, {"chr": [code points]}, {"numbers": [start, stop, separator]}, and
{"canary": true}, the path of a file that grading must not create.

Writes one line per input line, in order: {"id", "reward": 0 or 1, "reason", "ms"}. A line that
cannot be understood gets reward 0 and a reason that names its number. A summary goes to stderr.
Exit code: 0, or 1 where a line was malformed or the canary file appeared, 2 for bad arguments, 75
where a signal stopped it.
"""

import argparse
import collections
import json
import os
import sys
import tempfile
import time
from concurrent.futures import Future
from typing import Any, BinaryIO, TextIO

from disco_jax.command import stoppable
from disco_jax.reward import Grader, Verdict
from disco_jax.reward.guard import boxed
from disco_jax.reward.policies import DEFAULT

IN_FLIGHT = 4096
LONGEST = 10**8  # characters that a recipe may stand for
CANARY = os.path.join(tempfile.gettempdir(), "disco-canary")


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m disco_jax.grade",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="JSON lines; - reads standard input")
    parser.add_argument("--policy", default=DEFAULT, help="a call-like string (%(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout_s", type=float, default=3.0, help="wall seconds per answer")
    parser.add_argument("--memory_mib", type=int, default=512, help="per answer")
    args = parser.parse_args(argv)
    try:
        grader = Grader(
            args.policy,
            workers=args.workers,
            timeout_s=args.timeout_s,
            memory_mib=args.memory_mib,
        )
        lines = sys.stdin.buffer if args.file == "-" else open(args.file, "rb")
    except (ValueError, OSError) as error:
        parser.exit(2, f"grade: {error}\n")
    with grader, lines:
        begin = time.perf_counter()
        try:
            verdicts = grade_lines(grader, lines, sys.stdout)
        except OSError as error:  # a full disk
            parser.exit(1, f"grade: {error}\n")
        seconds = time.perf_counter() - begin
    report(verdicts, args.policy, seconds)
    canary = os.path.exists(CANARY)
    if canary:
        print(f"grade: {CANARY} exists: code in an answer was run", file=sys.stderr)
    return int(canary or any(v.reason.startswith("error: line") for v in verdicts))


def grade_lines(grader: Grader, lines: BinaryIO, out: TextIO) -> list[Verdict]:
    """Writes a verdict per line, in order; grading runs ahead of writing."""
    waiting: collections.deque[tuple[Any, Future[Verdict]]] = collections.deque()
    verdicts: list[Verdict] = []

    def write_one() -> None:
        name, future = waiting.popleft()
        verdict = future.result()
        verdicts.append(verdict)
        row = {"id": name, **verdict._asdict(), "ms": round(verdict.ms, 3)}
        out.write(json.dumps(row) + "\n")

    for number, line in enumerate(lines, 1):
        if line.strip():
            waiting.append(_submit(grader, number, line))
        while waiting and (len(waiting) > IN_FLIGHT or waiting[0][1].done()):
            write_one()
    while waiting:
        write_one()
    out.flush()
    return verdicts


def _submit(grader: Grader, number: int, line: bytes) -> tuple[Any, "Future[Verdict]"]:
    name: Any = number
    try:
        case = json.loads(line)
        if not isinstance(case, dict):
            raise ValueError("not an object")
        name = case.get("id", number)
        if "gold" not in case or ("response" in case) == ("answer" in case):
            raise ValueError("needs gold, and one of response and answer")
        response = text_of(case["response"]) if "response" in case else boxed(str(case["answer"]))
        return name, grader.submit(response, case["gold"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        failed: Future[Verdict] = Future()
        failed.set_result(Verdict(0, f"error: line {number}: {error}", 0.0))
        return name, failed


def text_of(recipe: Any) -> str:
    """The text a recipe stands for.

    Raises:
      ValueError: none of the forms in the module's text, or a text beyond `LONGEST`.
    """
    if isinstance(recipe, str):
        return recipe
    if isinstance(recipe, list):
        return "".join(map(text_of, recipe))
    match recipe:
        case {"repeat": [part, int(times)]}:
            text = text_of(part)
            _bound(len(text) * times)
            return text * times
        case {"chr": list(codes)}:
            return "".join(map(chr, codes))
        case {"numbers": [int(start), int(stop), str(separator)]}:
            _bound((stop - start) * (1 + len(separator)))
            return separator.join(map(str, range(start, stop)))
        case {"canary": True}:
            return CANARY
    raise ValueError(f"response is neither a text nor a recipe: {str(recipe)[:80]}")


def _bound(characters: int) -> None:
    if characters > LONGEST:
        raise ValueError(f"response of {characters:,} characters, at most {LONGEST:,} are made")


def report(verdicts: list[Verdict], policy: str, seconds: float) -> None:
    """The summary: how many were right, and why the others were not."""
    right = sum(v.reward for v in verdicts)
    share = f" ({right / len(verdicts):.1%})" if verdicts else ""
    print(
        f"{len(verdicts)} graded under {policy} in {seconds:.2f} s: {right} right{share}",
        file=sys.stderr,
    )
    reasons = collections.Counter((v.reward, v.reason.partition(":")[0]) for v in verdicts)
    for (reward, reason), count in reasons.most_common():
        print(f"  {count:6d}  reward {reward}  {reason}", file=sys.stderr)


if __name__ == "__main__":
    with stoppable():
        sys.exit(main())
