"""The six benchmark files, and the paper's rows."""

import pathlib

import numpy as np
import pytest

from disco_jax.data import filters
from disco_jax.eval import benchmarks, paper

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "shared" / "benchmarks"
needs_files = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the benchmark files are not in ../shared/benchmarks"
)


@pytest.mark.parametrize("table", paper.TABLES)
def test_published_averages_are_the_plain_mean_of_the_six_columns(table):
    whole = [row for row in paper.TABLES[table] if row.average is not None]
    assert len(whole) >= 9
    for row in whole:
        assert len(row.scores) == len(paper.COLUMNS)
        assert np.mean(row.scores) == pytest.approx(row.average, abs=0.00051), row


def test_disco_leads_every_table_at_8k():
    for rows in paper.TABLES.values():
        best = max(
            (r for r in rows if r.lengths == "8k / 8k" and r.average), key=lambda r: r.average
        )
        assert best.method.startswith("DisCO")


@needs_files
@pytest.mark.parametrize("name", benchmarks.BENCHMARKS)
def test_files_load_whole(name):
    questions = benchmarks.load(name, str(FOLDER))
    assert len(questions) == benchmarks.BENCHMARKS[name].rows
    assert len({q.id for q in questions}) == len(questions)
    assert questions[0].id == f"{name}/0" and questions[0].source == name
    for question in questions:
        assert all(gold and gold == gold.strip() for gold in question.golds)
        assert "output the final answer within" not in question.problem
    assert filters.duplicates(questions)[1] == []


@needs_files
def test_golds_of_every_type():
    first = {name: benchmarks.load(name, str(FOLDER)) for name in benchmarks.BENCHMARKS}
    assert any(q.golds == ("025",) for q in first["aime24"])  # text, zero-padded
    assert first["aime25"][0].golds == ("70",)  # int64
    assert first["amc23"][0].golds == ("142",)  # float64
    assert first["math500"][0].golds == (r"\left( 3, \frac{\pi}{2} \right)",)
    assert first["minerva"][0].golds == ("9.6",)  # list of one, with a line end
    assert max(len(q.golds) for q in first["minerva"]) == 3
    assert sum(map(len, first.values())) == 1590


@needs_files
def test_the_benchmarks_do_not_overlap_one_another_but_do_overlap_themselves():
    sets = [benchmarks.load(name, str(FOLDER)) for name in ("aime24", "aime25", "amc23", "math500")]
    for i, mine in enumerate(sets):
        others = [q for j, other in enumerate(sets) if j != i for q in other]
        assert filters.overlap(mine, others)[1] == []
    kept, dropped = filters.overlap(sets[0], sets[0])
    assert kept == [] and len(dropped) == 30


def test_missing_files_and_unknown_names_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="one of aime24, aime25, math500"):
        benchmarks.load("aime", str(tmp_path))
    with pytest.raises(ValueError, match=r"no amc.parquet in .*Optimization-AI/DisCO"):
        benchmarks.load("amc23", str(tmp_path))


def test_amc_carries_its_warning():
    assert "2022" in benchmarks.notes(["aime24", "amc23"])
    assert benchmarks.notes(["aime24"]) == ""


def test_table_has_the_papers_columns_and_rows():
    correct = {name: np.eye(30, 16) for name in benchmarks.BENCHMARKS}
    correct["math500"] = np.ones((500, 16))
    lines = benchmarks.table(correct, "this run", "8k / 8k", beside="1.5b").splitlines()
    assert lines[0].split() == (
        "Model/Method Train/Test AIME 2024 AIME 2025 MATH 500 AMC 2023 Minerva O-Bench Avg.".split()
    )
    assert lines[2].split()[-7:] == ["0.400", "-", "0.814", "-", "-", "-", "-"]
    assert lines[-2].split()[:2] == ["this", "run"]
    share = 16 / (30 * 16)
    expected = [share, share, 1, share, share, share, (5 * share + 1) / 6]
    assert lines[-2].split()[-7:] == [f"{x:.3f}" for x in expected]
    assert lines[-1].split()[5] == "0.993-1.000"
    assert len({len(line) for line in lines if line.startswith("DisCO")}) == 1


def test_table_leaves_cells_empty_and_gives_no_average_of_a_part():
    lines = benchmarks.table({"aime25": np.ones((30, 4))}, "run").splitlines()
    assert lines[-2].split() == ["run", "-", "1.000", "-", "-", "-", "-", "-"]
    with pytest.raises(ValueError, match="benchmarks are aime24"):
        benchmarks.table({"gsm8k": np.ones((2, 2))}, "run")
    with pytest.raises(ValueError, match="tables are 1.5b"):
        benchmarks.table({}, "run", beside="2b")
