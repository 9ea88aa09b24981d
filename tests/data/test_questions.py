"""Readers: every format gives the same questions, and no row disappears unreported."""

import csv
import json
import logging

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disco_jax.data import questions as m
from disco_jax.data.prompts import SUFFIX
from disco_jax.types import Question

ROWS = [
    {"problem": "What is $1+1$?", "answer": "2", "kind": "easy"},
    {"problem": 'A "quoted", two-\nline one', "answer": "\\frac{1}{2}", "kind": "hard"},
]


def write(folder, extension, rows=ROWS):
    path = folder / f"set.{extension}"
    if extension == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    elif extension == "json":
        path.write_text(json.dumps(rows))
    elif extension == "csv":
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


@pytest.mark.parametrize("extension", ["jsonl", "json", "csv", "parquet"])
def test_every_format_gives_the_same_questions(tmp_path, extension):
    path = write(tmp_path, extension)
    found = m.load(f"{extension}(path={path!r}, level='kind')")
    assert [(q.problem, q.golds, q.source, q.level) for q in found] == [
        (r["problem"], (r["answer"],), "set", r["kind"]) for r in ROWS
    ]
    assert len({q.id for q in found}) == 2


def test_columns_have_other_names_where_said(tmp_path):
    rows = [{"q": "1+1", "a": [2, "two"], "key": "x7"}]
    path = write(tmp_path, "jsonl", rows)
    (question,) = m.load(f"jsonl(path={path!r}, problem='q', answer='a', name='key')")
    assert question == Question("set/x7", "1+1", ("2", "two"), "set")


def verl_row(problem, gold, before="", after=" " + SUFFIX):
    return {
        "data_source": "",
        "prompt": [{"role": "user", "content": before + problem + after}],
        "reward_model": {"style": "rule", "ground_truth": gold},
        "extra_info": {"index": 0},
    }


@pytest.mark.parametrize("extension", ["parquet", "jsonl", "json"])
@pytest.mark.parametrize(
    "gold, golds",
    [("025", ("025",)), (70, ("70",)), (142.0, ("142",)), (["9.6\n", "9.60"], ("9.6", "9.60"))],
)
def test_verl_schema_with_golds_of_every_type(tmp_path, extension, gold, golds):
    path = write(tmp_path, extension, [verl_row("Find x.", gold)])
    (question,) = m.load(f"verl(path={path!r})")
    assert (question.problem, question.golds, question.source) == ("Find x.", golds, "set")


def test_dapo_problems_are_read_once_and_without_their_instructions(tmp_path):
    wrap = dict(
        before="Solve the following math problem step by step. The last line of your response "
        "should be of the form Answer: $Answer (without quotes) where $Answer is the answer to "
        "the problem.\n\n",
        after='\n\nRemember to put your answer on its own line after "Answer:".',
    )
    rows = [verl_row(p, g, **wrap) for p, g in [("A\n\nB", "1"), ("C", "2")] * 50 + [("C", "3")]]
    found = m.load(f"dapo(path={write(tmp_path, 'parquet', rows)!r})")
    assert [(q.problem, q.golds) for q in found] == [
        ("A\n\nB", ("1",)),
        ("C", ("2",)),
        ("C", ("3",)),
    ]


def test_deepscaler_needs_only_problem_and_answer(tmp_path):
    path = write(tmp_path, "json", [{"problem": "p", "answer": "1", "solution": "s"}])
    assert m.load(f"deepscaler(path={path!r})") == [
        Question("deepscaler/0", "p", ("1",), "deepscaler")
    ]


def test_bad_rows_are_reported_by_place_and_reason(tmp_path):
    path = tmp_path / "bad.jsonl"
    lines = [
        '{"problem": "p", "answer": 1}',
        "{broken",
        "[1]",
        '{"problem": " ", "answer": 1}',
        '{"problem": "p", "answer": null}',
        '{"problem": "p", "answer": []}',
        '{"question": "p"}',
        "[" * 100_000,
    ]
    path.write_text("\n".join(lines))
    found, dropped = m.read(f"jsonl(path={str(path)!r})")
    assert len(found) == 1
    assert [(d.where.rpartition(":")[2], d.kind) for d in dropped] == [
        ("2", "unreadable"),
        ("3", "unreadable"),
        ("4", "empty problem"),
        ("5", "no answer"),
        ("6", "no answer"),
        ("7", "no column"),
        ("8", "unreadable"),
    ]
    with pytest.raises(ValueError, match="7 of 8 rows hold no question, more than 1%"):
        m.load(f"jsonl(path={str(path)!r})")


def test_few_bad_rows_are_a_warning(tmp_path, caplog):
    path = write(tmp_path, "jsonl", [{"problem": "p", "answer": i} for i in range(150)] + [{}])
    with caplog.at_level(logging.WARNING):
        assert len(m.load(f"jsonl(path={path!r})")) == 150
    assert "dropped 1 of 151 rows" in caplog.text and ":151" in caplog.text


def test_system_turns_are_not_dropped_from_prompts_in_silence(tmp_path):
    row = verl_row("p", "1")
    row["prompt"].insert(0, {"role": "system", "content": "Be brief."})
    _, (dropped,) = m.read(f"verl(path={write(tmp_path, 'jsonl', [row])!r})")
    assert dropped.kind == "not one user turn"


cells = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)


@given(cells | st.lists(cells | st.lists(cells, max_size=2), max_size=4))
def test_golds_are_clean_text_whatever_the_cell_holds(value):
    golds = m.golds(value)
    assert all(isinstance(g, str) and g == g.strip() and g for g in golds)
    assert len(set(golds)) == len(golds)


@pytest.mark.parametrize(
    "spec, message",
    [
        ("jsonl(path='absent.jsonl')", r"no such file \(looked in"),
        ("jsonl()", "the parameter 'path' is missing"),
        ("jsonl(path=3)", "a file name in quotes"),
        ("jsonl(path='a', answr='x')", "no parameter 'answr'"),
        ("jsnl(path='a')", "did you mean 'json"),
        ("arithmetic(split='test', size=3)", "one of train, heldout"),
        ("arithmetic(split='train', size='3')", "size at least 1"),
        ("verl(path='a.txt')", "one of .json, .jsonl, .csv, .parquet"),
        ("json(path=__import__('os'))", "not a literal"),
    ],
)
def test_errors_name_the_spec_and_the_mend(spec, message):
    with pytest.raises(ValueError, match=message) as caught:
        m.load(spec)
    assert "data=" in str(caught.value) or "literal" in str(caught.value)


@pytest.mark.parametrize("extension", ["json", "parquet"])
def test_a_file_of_another_format_is_refused(tmp_path, extension):
    path = tmp_path / f"x.{extension}"
    path.write_text("neither")
    with pytest.raises(ValueError, match="not JSON|not a parquet file"):
        m.load(f"{extension}(path={str(path)!r})")
    path = tmp_path / "empty.jsonl"
    path.write_text("")
    with pytest.raises(ValueError, match="no questions in 0 rows"):
        m.load(f"jsonl(path={str(path)!r})")


def test_hub_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ValueError, match=r"pip install 'disco-jax\[hub\]'"):
        m.load("hub(repo='someone/something')")
