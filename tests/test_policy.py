"""Which of a workdir's policies is taken, and under which name."""

import json
import os
import shutil

import pytest

from configs import arithmetic
from disco_jax import evaluate, policy, setup, workdir
from disco_jax.command import Command, UserError
from disco_jax.report.progress import Progress


def find(folder, **options):
    """The policy of a command line; its weights are not loaded."""
    config = arithmetic.get_config()
    chosen = {option.name: option.default for option in evaluate.OPTIONS} | options
    mesh = setup.make_mesh(config)
    return policy.find_policy(Command(config, config, folder, chosen), mesh, Progress(1))


@pytest.fixture
def extended(tmp_path):
    """A run of 6 steps that finished, was given more, and was killed after its step 8."""
    for name in (workdir.POLICY, workdir.BEST):
        shutil.copytree(setup.model_folder("arithmetic"), tmp_path / name)
    (tmp_path / "summary.json").write_text(json.dumps({"steps": 6}))
    (tmp_path / workdir.CHECKPOINTS / "8").mkdir(parents=True)
    return tmp_path


def test_the_final_policy_is_the_default_where_the_run_is_finished(extended):
    (extended / "summary.json").write_text(json.dumps({"steps": 8}))
    assert find(extended).name == find(extended, checkpoint="final").name == workdir.POLICY


def test_the_final_policy_of_a_run_that_went_on_is_not_taken(extended):
    assert find(extended).name == "checkpoint-8"
    assert find(extended, checkpoint="best").name == workdir.BEST
    with pytest.raises(UserError, match="reach step 8, its summary step 6. --checkpoint=latest"):
        find(extended, checkpoint="final")
    assert find(extended, model=str(extended / workdir.POLICY)).name == workdir.POLICY


def test_a_policy_without_its_run_is_final(extended):
    shutil.rmtree(extended / workdir.CHECKPOINTS)
    (extended / "summary.json").unlink()
    assert find(extended).name == workdir.POLICY


def test_a_damaged_summary_is_said(extended):
    (extended / "summary.json").write_text("[6]")
    with pytest.raises(UserError, match="summary.json is not valid JSON"):
        find(extended)


def test_a_policy_is_named_after_its_folder_however_it_is_written(extended):
    inside = extended / workdir.POLICY / "below"
    inside.mkdir()
    assert find(extended, model=str(inside / os.pardir)).name == workdir.POLICY
