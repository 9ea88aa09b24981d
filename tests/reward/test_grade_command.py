"""`python -m disco_jax.grade`: lines in, lines out, in order, whatever the lines are."""

import io
import json
import subprocess
import sys

import pytest

from disco_jax import grade
from disco_jax.reward import Grader

LINES = [
    {"id": "a", "answer": "1+x", "gold": "x+1"},
    {"id": "b", "response": "w</think>\\boxed{4}", "gold": ["5", "4"]},
    {"id": "c", "response": "\\boxed{4}", "gold": 4},
    {"id": "d", "answer": "142", "gold": 142.0},
    {"id": "e", "response": ["w</think>\\boxed{", {"repeat": ["7", 3]}, "}"], "gold": 777},
]


def run(tmp_path, lines, *arguments):
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    done = subprocess.run(
        [sys.executable, "-m", "disco_jax.grade", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_verdicts_come_in_order_with_a_summary(tmp_path):
    code, rows, summary = run(tmp_path, LINES)
    assert code == 0
    assert [(row["id"], row["reward"]) for row in rows] == list(
        zip("abcde", [1, 1, 0, 1, 1], strict=True)
    )
    assert all(set(row) == {"id", "reward", "reason", "ms"} for row in rows)
    assert "5 graded under math" in summary and "4 right (80.0%)" in summary
    assert "no_think_close" in summary


def test_a_malformed_line_is_named_and_the_rest_goes_on(tmp_path):
    lines = ["{not json", "[1]", {"id": "x", "answer": "5"}, {"answer": "5", "gold": "5"}]
    lines += [{"id": "y", "response": {"dance": 1}, "gold": "5"}, "", LINES[0]]
    code, rows, _ = run(tmp_path, lines)
    assert code == 1
    assert [row["reward"] for row in rows] == [0, 0, 0, 1, 0, 1]
    assert [row["id"] for row in rows] == [1, 2, "x", 4, "y", "a"]
    for row, number in ((rows[0], 1), (rows[1], 2), (rows[2], 3), (rows[4], 5)):
        assert row["reason"].startswith(f"error: line {number}:")


def test_bytes_that_are_no_text_and_endless_recipes_cost_their_line_alone(tmp_path):
    path = tmp_path / "cases.jsonl"
    endless = [{"repeat": ["ab", 10**11]}, {"numbers": [0, 10**11, ","]}]
    lines = [json.dumps({"response": recipe, "gold": "4"}).encode() for recipe in endless]
    path.write_bytes(b"\n".join([b'{"answer": "\xff", "gold": "4"}', *lines, b"", b"[]"]))
    out = io.StringIO()
    with Grader(workers=1) as grader, path.open("rb") as cases:
        verdicts = grade.grade_lines(grader, cases, out)
    reasons = [verdict.reason for verdict in verdicts]
    assert "line 1: 'utf-8' codec can't decode byte 0xff" in reasons[0]
    assert all("200,000,000,000 characters, at most" in reason for reason in reasons[1:3])
    assert reasons[3] == "error: line 5: not an object" and len(out.getvalue().splitlines()) == 4


def test_a_full_disk_is_told_in_one_line(tmp_path):
    path = tmp_path / "cases.jsonl"
    path.write_text("[]\n")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "disco_jax.grade", str(path)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert done.stderr.startswith("grade: [Errno 28] No space left on device\n")


def test_the_policy_is_an_argument(tmp_path):
    _, rows, _ = run(tmp_path, LINES, "--policy", 'math(think="none")', "--workers", "1")
    assert [row["reward"] for row in rows] == [1, 1, 1, 1, 1]


def test_a_wrong_policy_or_file_is_told_in_one_line(tmp_path):
    code, rows, error = run(tmp_path, LINES, "--policy", "maths")
    assert (code, rows) == (2, []) and "did you mean 'math'" in error
    with pytest.raises(SystemExit) as stop:
        grade.main([str(tmp_path / "absent.jsonl")])
    assert stop.value.code == 2


def test_recipes():
    assert grade.text_of(["a", {"repeat": [["b", "c"], 2]}]) == "abcbc"
    assert grade.text_of({"chr": [65, 0x1F4A9]}) == "A\U0001f4a9"
    assert grade.text_of({"numbers": [0, 3, ","]}) == "0,1,2"
    assert grade.text_of({"canary": True}) == grade.CANARY
    for wrong in ({}, {"repeat": ["a"]}, {"repeat": ["a", "b"]}, 5, {"canary": False}):
        with pytest.raises(ValueError, match="recipe"):
            grade.text_of(wrong)


def test_a_signal_stops_it_in_one_line():
    command = [sys.executable, "-m", "disco_jax.grade", "-"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdin.write("not a case\n" * 1000)  # more verdicts than a pipe's buffer holds back
        process.stdin.flush()
        process.stdout.readline()
        process.terminate()
        assert process.wait(60) == 75
        assert process.stderr.read() == (
            "stopped; what is finished is kept, run the same command again\n"
        )
