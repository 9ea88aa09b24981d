"""What a user types wrong fails at once, in one line that names the mend."""

import dataclasses
import errno
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from disco_jax import datasets, evaluate, policy, processes, settings, setup, train, workdir
from disco_jax.command import FAILED, OK, STOPPED, WRONG, Command, UserError, launch
from disco_jax.eval import benchmarks, responses
from disco_jax.folder import write_json
from disco_jax.report import writers
from disco_jax.report.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = ROOT.parent / "shared" / "benchmarks"
CONFIG = "--config=configs/arithmetic.py"


def run(main, *arguments):
    with pytest.raises(SystemExit) as end:
        launch(main, ["train", *arguments], [processes.OPTION])
    return end.value.code


MISTAKES = {
    "--config.stps=3": 'Did you mean "steps"',
    "--config.rollout.temprature=1": 'Did you mean "temperature"',
    "--config.steps=1.5": "invalid literal for int",
    "--config.steps=0": "config.steps=0: must be at least 1",
    "--config.responses=1": "config.responses=1: must be at least 2",
    "--config.rollout.top_p=1.5": "config.rollout.top_p=1.5: must be in (0, 1]",
    "--config.questions=15": "config.questions=15 is not a multiple of config.minibatches=4",
    "--config.packing.row_tokens=100": "packing.row_tokens=100 cannot hold the longest sequence",
    "--config.model.dtype=float16": "must be float32 | bfloat16",
    "--config.model.path=nowhere": "neither a folder nor an embedded model (arithmetic)",
    "--config.rollout.max_tokens=5000": "cannot hold",
    "--config.objective.surrogate=dor(tau=1)": "did you mean 'dro'",
    "--config.objective.surrogate=dro": "the parameter 'tau' is missing",
    "--config.objective.penalty=squared_hinge(beta=1e3, delta=-1)": "delta",
    "--config.objective.questions=some": "questions",
    "--config.data.train=arithmetik(size=3)": "config.data.train",
    "--config.data.prompt_tokens=3": "no question is left. dropped   4096  prompt over 3 tokens",
    "--config.data.too_long=cut": "config.data.too_long='cut': must be drop | refuse",
    "--config.data.difficulty=(0.2, 0.8)": "needs success rates",
    "--config.data.difficulty=(0.8, 0.2)": "two success rates in [0, 1], the lower one first",
    "--config.data.success=nowhere.jsonl": "nowhere.jsonl: no such file of responses",
    "--config.data.order=easy_first": "no success rates: name an evaluation",
    "--config.data.order=hard_first": "no order 'hard_first'",
    "--config.data.benchmarks=nowhere": "no aime.parquet in 'nowhere'",
    "--config.eval.select=benchmarks": "needs config.data.benchmarks",
    "--config.rollout.refills=-1": "config.rollout.refills=-1: must be at least 0",
    "--config.reward.policy=maths": "config.reward",
    "--config.mesh=(3, 3, 3)": "must multiply to the 8 devices",
    "--config.rollout.slots=6": "config.rollout.slots=6 must be a multiple",
    "--config.model.attention=splash": "needs a TPU, the devices are cpu",
    "--confg=3": "Unknown command line flag 'confg'",
    "extra": "unexpected argument 'extra'",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(train.train, CONFIG, f"--workdir={tmp_path / 'run'}", mistake) == WRONG
    text = capsys.readouterr().err
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    assert MISTAKES[mistake] in line
    assert "Traceback" not in text
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "both are needed"),
        ([CONFIG], "both are needed"),
        ([CONFIG, "--workdir="], "both are needed"),
        (["--config=configs/nowhere.py", "--workdir=x"], "configs/nowhere.py"),
        (["--config=configs/arithmetic.py:ppo", "--workdir=x"], "method 'ppo' is not one of grpo"),
    ],
)
def test_a_missing_flag_or_file_is_one_line(arguments, text, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(train.train, *arguments) == WRONG
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and text in line


def test_the_home_folder_is_known_in_a_workdir(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = []
    with pytest.raises(SystemExit):
        launch(found.append, ["train", CONFIG, "--workdir=~/run"])
    assert found[0].workdir == tmp_path / "run"


def test_a_workdir_that_cannot_be_made_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "file").write_text("")
    assert run(train.train, CONFIG, f"--workdir={tmp_path / 'file' / 'run'}") == WRONG
    assert "file" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_command_in_one_line_wherever_it_is(number, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    before = signal.getsignal(number)
    # While the files of a policy are looked into, where nothing is to be finished first.
    monkeypatch.setattr(policy, "find_policy", lambda *_: signal.raise_signal(number))
    with pytest.raises(SystemExit) as end:
        launch(evaluate.main, ["evaluate", CONFIG, "--workdir=x"], evaluate.OPTIONS)
    assert end.value.code == STOPPED
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "stopped; what is finished is kept, run the same command again"
    assert signal.getsignal(number) == before


def test_a_second_signal_ends_at_once():
    code = "import signal as s\nfrom disco_jax.command import stoppable\nwith stoppable():\n"
    code += "  try: s.raise_signal(s.SIGTERM)\n  finally: s.raise_signal(s.SIGTERM)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)
    assert done.returncode == -signal.SIGTERM and not done.stderr


def test_a_full_disk_is_one_line(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)

    def flush():  # of standard output, with the command itself done
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys.stdout, "flush", flush)
        launch(lambda _: OK, ["train", CONFIG, "--workdir=x"])
    assert end.value.code == FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device. Make room for --workdir=x, and run the same" in line


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
def test_make_bench_says_which_files_it_needs(tmp_path):
    command = ["make", "bench", f"GOLDS={tmp_path}", f"VENV={tmp_path / 'venv'}"]
    # As from a terminal: under `make test` make would also say which folder it is in.
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKELEVEL", "MAKEFLAGS")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout  # 2 is how make says that a rule failed
    assert f"GOLDS={tmp_path}: no parquet files there" in done.stderr
    assert "make bench GOLDS=FOLDER" in done.stderr and not (tmp_path / "venv").exists()


def configs():
    """Every configuration file, as ConfigDicts."""
    import importlib

    for path in sorted((ROOT / "configs").glob("*.py")):
        module = importlib.import_module(f"configs.{path.stem}")
        yield path.name, module.get_config()


def leaves(config, prefix=""):
    for key, value in config.items():
        if hasattr(value, "items"):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_every_file_holds_exactly_the_keys_of_base(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    found = dict(configs())
    base = set(leaves(found["base.py"]))
    for name, config in found.items():
        assert set(leaves(config)) == base, name
        settings.check(config)


def test_no_key_is_dead(monkeypatch):
    """Every key is read by name somewhere, or its section is passed on whole."""
    monkeypatch.syspath_prepend(ROOT)
    source = "\n".join(p.read_text() for p in (ROOT / "disco_jax").glob("*.py"))
    sections = set(re.findall(r"(?:\*\*|dict\()config\.(\w+)", source))
    for key in leaves(dict(configs())["base.py"]):
        section, _, name = key.rpartition(".")
        read = rf"\.{name}\b|\[[\"']{name}[\"']\]|config\.{section}\[key\]"
        assert section in sections or re.search(read, source), f"config.{key} is never read"


def test_embedded_questions_fit_the_embedded_model(arithmetic_run):
    config, tokenizer = arithmetic_run
    quiet = Progress(1, quiet=True)
    train = datasets.train_questions(config, tokenizer, quiet, {})
    heldout = datasets.heldout_questions(config, tokenizer, quiet)["heldout"]
    for question_set in (train, heldout):
        assert question_set.prompt_length_Q.max() <= config.data.prompt_tokens
        assert not (question_set.prompt_QP == tokenizer.inner.unk_token_id).any()
    train_problems = {q.problem for q in train.questions}
    assert not train_problems & {q.problem for q in heldout.questions}


@pytest.fixture
def arithmetic_run(monkeypatch):
    """(configuration, tokenizer) of the embedded run."""
    monkeypatch.syspath_prepend(ROOT)
    config = dict(configs())["arithmetic.py"]
    return config, setup.find_model(config).tokenizer


def write_rows(path, rows):
    path.write_text("".join(json.dumps({"problem": p, "answer": a}) + "\n" for p, a in rows))


def test_a_training_set_is_filtered_and_says_so(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    path = tmp_path / "mine.jsonl"
    rows = [("Compute 1+1.", "2"), ("compute 1 + 1", "2"), ("Compute " + "1+" * 40, "9")]
    write_rows(path, [*rows, ("Compute 2+2.", "4"), ("Compute 3+3.", " ")])
    config.data.train = f"jsonl(path={str(path)!r})"
    rates = {"mine/1": 0.1, "mine/4": 0.9}
    config.data.difficulty = (0.5, 1.0)
    with pytest.raises(UserError, match="1 of 5 rows hold no question"):
        datasets.train_questions(config, tokenizer, Progress(1, quiet=True), rates)
    write_rows(path, [*rows, ("Compute 2+2.", "4")])
    stream = io.StringIO()
    made = datasets.train_questions(config, tokenizer, Progress(1, stream=stream), rates)
    assert [q.id for q in made.questions] == ["mine/4"]
    text = stream.getvalue()
    assert "config.data.train: 1 questions" in text
    assert "duplicate: mine/2 (of mine/1)" in text
    assert "too hard: mine/1 (p(q) = 0.10)" in text
    assert "prompt over 40 tokens: mine/3" in text
    with pytest.raises(UserError, match="must be an evaluation of that very set"):
        datasets.train_questions(config, tokenizer, Progress(1, quiet=True), {"other/1": 0.5})
    config.data.too_long = "refuse"
    with pytest.raises(UserError, match=r"prompt over 40 tokens: mine/3 .*data.too_long=drop"):
        datasets.train_questions(config, tokenizer, Progress(1, quiet=True), rates)


def test_ungradable_golds_are_refused_or_dropped(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    path = tmp_path / "mine.jsonl"
    write_rows(path, [("Compute 1+1.", "2"), ("Compute 2+2.", "\\boxed{")])
    config.data.train = f"jsonl(path={str(path)!r})"
    quiet = Progress(1, quiet=True)
    with pytest.raises(UserError, match=r"ungradable answer: mine/2 .*data.ungradable=drop"):
        datasets.train_questions(config, tokenizer, quiet, {})
    config.data.ungradable = "drop"
    made = datasets.train_questions(config, tokenizer, quiet, {})
    assert [q.id for q in made.questions] == ["mine/1"]


@pytest.mark.skipif(not FILES.is_dir(), reason="no benchmark files in ../shared/benchmarks")
def test_questions_of_the_benchmarks_do_not_train(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    config.data.benchmarks, config.data.prompt_tokens = str(FILES), 600
    known = benchmarks.load("aime24", str(FILES))[0].problem
    write_rows(tmp_path / "mine.jsonl", [("Compute 1+1.", "2"), ("Problem 7. " + known, "204")])
    config.data.train = f"jsonl(path={str(tmp_path / 'mine.jsonl')!r})"
    stream = io.StringIO()
    made = datasets.train_questions(config, tokenizer, Progress(1, stream=stream), {})
    assert [q.id for q in made.questions] == ["mine/1"]
    assert "overlaps a benchmark: mine/2 (aime24/0: 100% of the 8-grams)" in stream.getvalue()


def test_a_workdir_refuses_other_data(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    command = Command(config, config, tmp_path, {})
    quiet = Progress(1, quiet=True)
    heldout = datasets.heldout_questions(config, tokenizer, quiet)
    train = datasets.train_questions(config, tokenizer, quiet, {})
    first = workdir.Workdir(command, train, heldout, {})
    first.open(0, quiet)
    with pytest.raises(UserError, match="another process trains or samples there"):
        workdir.Workdir(command, train, heldout, {})
    first.close()
    changed = dataclasses.replace(train, questions=train.questions[::-1])
    with pytest.raises(UserError, match=r"on other data: train.questions: \w+ -> \w+\. Restore"):
        workdir.Workdir(command, changed, heldout, {})


def test_a_restart_removes_its_own_later_evaluations_alone(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    train = datasets.train_questions(config, tokenizer, Progress(1, quiet=True), {})
    kept = {"step-2", "step-final", "step-", "policy"}
    for name in {*kept, "step-4"}:
        (tmp_path / workdir.EVALUATIONS / name).mkdir(parents=True)
    records = workdir.Workdir(Command(config, config, tmp_path, {}), train, {}, {})
    records.open(2, Progress(9, quiet=True))
    records.close()
    assert {path.name for path in (tmp_path / workdir.EVALUATIONS).iterdir()} == kept


def test_a_summary_is_that_of_the_last_step(arithmetic_run, tmp_path):
    """Of a run that was made longer, and killed between its last checkpoint and its end."""
    config, tokenizer = arithmetic_run
    train = datasets.train_questions(config, tokenizer, Progress(1, quiet=True), {})
    score = {"eval/pass1": 0.5, "eval/pass1_low": 0.4, "eval/pass1_high": 0.6}
    with writers.MetricsWriter(tmp_path) as rows:
        for step in (0, 2, 4):
            rows.write(step, "eval", score)
            rows.write(step + 1, "train", {"kl/mean": 0.0})
    write_json(tmp_path / "summary.json", {"steps": 2})
    records = workdir.Workdir(Command(config, config, tmp_path, {}), train, {}, {})
    records.open(5, Progress(5, stream=io.StringIO()))
    records.finish()
    assert workdir.finished_step(tmp_path) == 5


def test_lines_that_were_lost_do_not_cost_a_run_its_end(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    train = datasets.train_questions(config, tokenizer, Progress(1, quiet=True), {})
    score = {"eval/pass1": 0.5, "eval/pass1_low": 0.4, "eval/pass1_high": 0.6}
    with writers.MetricsWriter(tmp_path) as rows:  # of one evaluation, and of no step's KL
        rows.write(5, "train", {"kl/mean": float("nan")})
        rows.write(5, "eval", score)
    records = workdir.Workdir(Command(config, config, tmp_path, {}), train, {}, {})
    records.open(5, Progress(5, stream=io.StringIO()))
    records.finish()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["pass1_before"] == summary["pass1_after"] == 0.5
    assert summary["kl_mean"] is None


def test_an_evaluation_without_its_score_is_named(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    train = datasets.train_questions(config, tokenizer, Progress(1, quiet=True), {})
    with writers.MetricsWriter(tmp_path) as rows:
        rows.write(5, "eval", {"eval/length": 1.0})
    records = workdir.Workdir(Command(config, config, tmp_path, {}), train, {}, {})
    with pytest.raises(UserError, match="metrics.jsonl: the evaluation of step 5 lacks eval/pass1"):
        records.open(5, Progress(5, quiet=True))
    records.close()


def test_a_sampler_far_from_the_trainer_is_said_once(arithmetic_run, tmp_path):
    config, tokenizer = arithmetic_run
    stream = io.StringIO()
    shown = Progress(9, stream=stream)
    train = datasets.train_questions(config, tokenizer, Progress(1, quiet=True), {})
    records = workdir.Workdir(Command(config, config, tmp_path, {}), train, {}, {})
    records.open(0, shown)
    for step, gap in ((2, 0.05), (3, 0.2), (4, 0.3)):  # rows of responses are not due
        records.step(step, {"kl/floor_abs": gap}, None)
    records.close()
    said = [line for line in stream.getvalue().splitlines() if "config.log.gap_alarm" in line]
    assert len(said) == 1
    assert said[0].startswith("step 3: ") and "0.2 nats" in said[0]


def test_success_rates_stay_with_the_run(arithmetic_run, tmp_path):
    config, _ = arithmetic_run
    source, command = tmp_path / "rates.jsonl", Command(config, config, tmp_path / "run", {})
    head = responses.header([], 2, {})
    some = [responses.Response("q/1", s, "", 1, True, bool(s), None) for s in range(2)]
    responses.rewrite(source, head, some)
    config.data.success = str(source)
    assert workdir.success_rates(command) == {"q/1": 0.5}
    command.workdir.mkdir()
    write_json(command.workdir / "success.json", {"q/1": 0.5})
    source.unlink()
    assert workdir.success_rates(command) == {"q/1": 0.5}


def test_a_model_too_short_for_the_run_is_refused(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    config = dict(configs())["arithmetic.py"]
    config.rollout.max_tokens = 5000
    config.packing.row_tokens = 6000
    with pytest.raises(UserError, match="exceed the model's"):
        setup.find_model(config)
