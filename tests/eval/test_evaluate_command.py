"""The command on the embedded policy: killed for good, resumed, regraded, compared."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest

from disco_jax import evaluate, samplers, setup
from disco_jax.command import OK, WRONG, launch
from disco_jax.eval import responses

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT.parent / "shared" / "benchmarks"
CONFIG = "--config=configs/arithmetic.py"
FLAGS = [
    CONFIG,
    "--model=arithmetic",
    "--questions=arithmetic(split='heldout', size=60, levels=(1, 2, 3), digits=2)",
    "--limit=16",
    "--config.eval.samples=4",
    "--config.eval.max_tokens=48",
    "--config.rollout.slots=8",
    "--config.rollout.prefill_questions=2",
    "--config.rollout.steps_per_dispatch=1",  # so that a kill finds it at work
]
FILE = pathlib.Path("evaluations/arithmetic/questions-first16.jsonl")
RESULTS = FILE.with_name("results.json")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Processes of one device that share compiled programs."""
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def start(workdir, environment):
    command = [sys.executable, "-m", "disco_jax.evaluate", *FLAGS, f"--workdir={workdir}"]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    return out, err


def here(workdir, *arguments):
    """Runs the command in this process; the exit code."""
    with pytest.raises(SystemExit) as end:
        launch(
            evaluate.main,
            ["evaluate", *FLAGS, f"--workdir={workdir}", *arguments],
            evaluate.OPTIONS,
        )
    return end.value.code


@pytest.fixture(scope="module")
def whole(tmp_path_factory, environment):
    """An evaluation that nothing interrupts: (workdir, standard output, standard error)."""
    workdir = tmp_path_factory.mktemp("whole")
    return workdir, *finish(start(workdir, environment))


@pytest.mark.slow
def test_it_prints_and_leaves_its_results(whole):
    workdir, out, err = whole
    results = json.loads((workdir / RESULTS).read_text())
    numbers = results["sets"]["questions-first16"]
    assert numbers["questions"] == 16 and numbers["samples"] == 4 and numbers["left_out"] == 0
    head, saved = responses.read(workdir / FILE)
    assert len(saved) == 16 * 4
    assert numbers["pass@1"] == pytest.approx(sum(r.correct for r in saved.values()) / 64)
    assert results["settings"] == head["settings"]
    assert f"{100 * numbers['pass@1']:.1f}" in out
    assert "16 questions" in err and "first prompt" in err and "64/64 responses" in err


@pytest.mark.slow
def test_killed_midway_it_ends_the_same(whole, tmp_path, environment):
    process = start(tmp_path, environment)
    path = tmp_path / FILE
    while process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") > 20:
            process.kill()
            break
        time.sleep(0.002)
    process.communicate()
    assert process.returncode == -9, "it ended before it could be killed"
    before = responses.read(path)[1]
    assert 20 <= len(before) < 64 and not (tmp_path / RESULTS).exists()
    finish(start(tmp_path, environment))
    expected = whole[0]
    assert responses.read(path) == responses.read(expected / FILE)
    assert before.items() <= responses.read(path)[1].items()
    assert (tmp_path / RESULTS).read_text() == (expected / RESULTS).read_text()


@pytest.mark.slow
def test_a_finished_one_is_regraded_and_compared_without_sampling(
    whole, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(ROOT)
    expected, _, _ = whole
    mine = tmp_path / FILE
    mine.parent.mkdir(parents=True)
    head, saved = responses.read(expected / FILE)
    right = sum(r.correct for r in saved.values())
    responses.rewrite(mine, head, [r._replace(correct=False) for r in saved.values()])
    assert here(tmp_path, f"--compare={expected}") == OK
    worse = json.loads((tmp_path / RESULTS).read_text())["compared"]["sets"]["questions-first16"]
    assert worse["difference"] == pytest.approx(-right / 64) and worse["p_value"] < 0.01
    capsys.readouterr()

    assert here(tmp_path, "--regrade", f"--compare={expected}", "--parquet") == OK
    out, err = capsys.readouterr()
    assert f"{right} verdicts from wrong to right, 0 from right to wrong" in err
    assert f"+0.0 points [+0.0, +0.0] over {expected}" in out
    assert responses.read(mine)[1] == saved
    assert mine.with_suffix(".parquet").read_bytes().startswith(b"PAR1")


MISTAKES = {
    "--model=nowhere": "neither a folder nor an embedded model (arithmetic)",
    "--model=": "no trained policy there; name one with --model=FOLDER",
    "--checkpoint=best": "--model and --checkpoint both name a policy",
    "--checkpoint=newest": "--checkpoint='newest': one of final | best | latest",
    "--name=step-best": "--name='step-best': give the plain name of a folder",
    "--name=../baseline": "--name='../baseline': give the plain name",
    "--name=..": "--name='..': give the plain name",
    "--name=mine/": "--name='mine/': give the plain name",
    "--table=2b": "--table='2b': one of 1.5b | 7b | 8b",
    "--limit=-1": "--limit=-1: at least 1",
    "--limit=x": "flag --limit=x",
    "--questions=arithmetik(size=3)": "--questions: data='arithmetik(size=3)'",
    "--questions=jsonl(path='none.jsonl')": "no such file",
    "--benchmarks=nowhere": "no aime.parquet in 'nowhere'; the six files lie in",
    "--config.eval.benchmarks=aime24": "needs config.data.benchmarks",
    "--config.eval.samples=0": "config.eval.samples=0: must be at least 1",
    "--config.eval.max_tokens=5000": "exceed the model's 1024 positions",
    "--config.data.prompt_tokens=3": "no question is left. dropped     16  prompt over 3 tokens",
    "--config.data.prompt_tokens=16 --config.data.too_long=refuse": "--config.data.too_long=drop",
    "--regrade": "no such file of responses",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert here(tmp_path, *mistake.split(" ")) == WRONG
    text = capsys.readouterr().err
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    assert MISTAKES[mistake] in line
    assert "Traceback" not in text


def test_a_policy_in_a_folder_named_as_a_runs_evaluations_are_needs_a_name(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(ROOT)
    policy = shutil.copytree(setup.model_folder("arithmetic"), tmp_path / "step-5")
    assert here(tmp_path, f"--model={policy}") == WRONG
    assert "--name='step-5': give the plain name" in capsys.readouterr().err


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="no benchmark files in ../shared/benchmarks")
def test_benchmarks_stand_beside_the_papers_rows_and_carry_their_notes(
    tmp_path, capsys, monkeypatch
):
    """Every response is one end-of-sequence token: what is tested is what is made of them."""

    def silent(engine, params, prompt_QP, prompt_length_Q, key_QN, on_finish):
        for q, n in np.ndindex(key_QN.shape):
            on_finish(q, n, np.array(engine.config.eos_ids[:1]))

    monkeypatch.setattr(samplers, "make_sampler", lambda config: silent)
    monkeypatch.chdir(ROOT)
    flags = [
        f"--benchmarks={BENCHMARKS}",
        "--questions=",
        "--limit=2",
        "--config.eval.samples=1",
        "--config.eval.benchmarks=amc23,aime25",
        "--config.data.prompt_tokens=600",
        "--table=7b",
    ]
    assert here(tmp_path, *flags) == OK
    out, err = capsys.readouterr()
    assert "AMC 2023: the file named AMC 2023 holds 43 problems of the AMC 12 of 2022" in out
    lines = out.splitlines()
    (mine,) = [line for line in lines if line.startswith("arithmetic (first 2)")]
    assert mine.split()[3:] == ["-", "/", "48", "-", "0.000", "-", "0.000", "-", "-", "-"]
    assert any(line.startswith("DS-Distill-Qwen-7B") for line in lines)
    sets = json.loads((tmp_path / RESULTS).read_text())["sets"]
    assert list(sets) == ["amc23-first2", "aime25-first2"]
