"""What a user types wrong fails at once, in one line that names the mend."""

import pathlib
import re

import pytest

from disco_jax import settings, setup, train
from disco_jax.command import WRONG, UserError, launch
from disco_jax.report.progress import Progress

ROOT = pathlib.Path(__file__).resolve().parents[1]
CONFIG = "--config=configs/arithmetic.py"


def run(main, *arguments):
    with pytest.raises(SystemExit) as end:
        launch(main, ["train", *arguments])
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
    "--config.data.prompt_tokens=3": "no question fits config.data.prompt_tokens=3",
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
        (["--config=configs/nowhere.py", "--workdir=x"], "configs/nowhere.py"),
        (["--config=configs/arithmetic.py:ppo", "--workdir=x"], "method 'ppo' is not one of grpo"),
    ],
)
def test_a_missing_flag_or_file_is_one_line(arguments, text, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(train.train, *arguments) == WRONG
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and text in line


def test_a_workdir_that_cannot_be_made_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "file").write_text("")
    assert run(train.train, CONFIG, f"--workdir={tmp_path / 'file' / 'run'}") == WRONG
    assert "file" in capsys.readouterr().err.splitlines()[-1]


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
    sections = set(re.findall(r"\*\*config\.(\w+)", source))
    for key in leaves(dict(configs())["base.py"]):
        section, _, name = key.rpartition(".")
        read = rf"\.{name}\b|\[[\"']{name}[\"']\]|config\.{section}\[key\]"
        assert section in sections or re.search(read, source), f"config.{key} is never read"


def test_embedded_questions_fit_the_embedded_model(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    config = dict(configs())["arithmetic.py"]
    model = setup.find_model(config)
    quiet = Progress(1, quiet=True)
    for key in ("train", "heldout"):
        question_set = setup.load_questions(config, key, model.tokenizer, quiet)
        assert question_set.prompt_length_Q.max() <= config.data.prompt_tokens
        unknown = model.tokenizer.inner.unk_token_id
        assert not (question_set.prompt_QP == unknown).any()
    train_ids = {q.problem for q in setup.load_questions(
        config, "train", model.tokenizer, quiet).questions}  # fmt: skip
    heldout = setup.load_questions(config, "heldout", model.tokenizer, quiet).questions
    assert not train_ids & {q.problem for q in heldout}


def test_a_model_too_short_for_the_run_is_refused(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    config = dict(configs())["arithmetic.py"]
    config.rollout.max_tokens = 5000
    config.packing.row_tokens = 6000
    with pytest.raises(UserError, match="exceed the model's"):
        setup.find_model(config)
