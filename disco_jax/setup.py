"""From a configuration to what a run is made of: tokenizer, questions, model, mesh, programs."""

import functools
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

import disco_jax
from disco_jax import answers
from disco_jax.answers import QuestionSet
from disco_jax.command import UserError
from disco_jax.data import prompts, questions
from disco_jax.data.prompts import Tokenizer
from disco_jax.model import mesh as meshes
from disco_jax.model import weights
from disco_jax.model.dims import ModelDims
from disco_jax.objective.objective import Objective, make_objective
from disco_jax.report.progress import Progress
from disco_jax.reward import Grader, self_check
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.update.gradient import Gradient
from disco_jax.update.optimizer import make_optimizer
from disco_jax.update.passes import Passes
from disco_jax.update.step import Updater

ASSETS = pathlib.Path(disco_jax.__file__).parent / "assets"


class Model(NamedTuple):
    """A policy on disk: where it is, its tokenizer and its sizes."""

    folder: pathlib.Path
    tokenizer: Tokenizer
    dims: ModelDims


def model_folder(path: str) -> pathlib.Path:
    """The folder of an embedded model, or else of a path.

    Raises:
      UserError: neither.
    """
    for folder in (ASSETS / path, pathlib.Path(path).expanduser()):
        if path and folder.is_dir():
            return folder
    embedded = ", ".join(sorted(p.name for p in ASSETS.iterdir() if p.is_dir()))
    raise UserError(f"model.path={path!r}: neither a folder nor an embedded model ({embedded})")


def find_model(config: Any) -> Model:
    """Reads the tokenizer and the sizes (not the weights) of `config.model.path`.

    Raises:
      UserError: no such model, or one that does not fit the configuration.
    """
    path = config.model.path
    folder = model_folder(path)
    try:
        dims = weights.read_dims(folder)
        tokenizer = prompts.load_tokenizer(str(folder), config.data.template, config.data.think)
    except (OSError, ValueError) as error:
        raise UserError(f"config.model.path={path!r}: {error}") from error
    longest = config.data.prompt_tokens + config.rollout.max_tokens
    if tokenizer.size > dims.vocab:
        raise UserError(
            f"config.model.path={path!r}: its tokenizer has {tokenizer.size} tokens, the model"
            f" {dims.vocab}; they do not belong together"
        )
    if longest > dims.max_position:
        raise UserError(
            f"config.data.prompt_tokens={config.data.prompt_tokens} + config.rollout.max_tokens="
            f"{config.rollout.max_tokens} exceed the model's {dims.max_position} positions"
        )
    return Model(folder, tokenizer, dims)


def load_weights(model: Model) -> dict[str, Any]:
    """The parameters on the host; raises UserError where the files do not hold them."""
    try:
        return weights.load(model.folder, model.dims)
    except (OSError, ValueError) as error:
        raise UserError(f"config.model.path: {error}") from error


def load_questions(config: Any, key: str, tokenizer: Tokenizer, progress: Progress) -> QuestionSet:
    """Reads `config.data.train` or `config.data.heldout`, checks the golds, tokenizes the prompts.

    Raises:
      UserError: unreadable data, golds that the grader does not accept for themselves, or no
        question whose prompt fits.
    """
    where = f"config.data.{key}"
    try:
        found = questions.load(config.data[key])
        question_set, left_out = answers.prepare(
            found, tokenizer, config.data.suffix, config.data.prompt_tokens
        )
        bad = self_check([q.golds for q in question_set.questions], config.reward.policy)
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: {error}") from error
    if left_out:
        progress.say(
            f"{where}: {left_out} of {len(found)} questions left out, their prompts exceed"
            f" config.data.prompt_tokens={config.data.prompt_tokens}"
        )
    if bad:
        shown = "; ".join(f"{question_set.questions[b.index].id}: {b.gold!r}" for b in bad[:3])
        raise UserError(
            f"{where}: {len(bad)} golds are not accepted as answers to themselves under"
            f" config.reward.policy={config.reward.policy!r}: {shown}. Drop or mend those rows"
        )
    return question_set


def make_grader(config: Any) -> Grader:
    """Raises UserError for an unknown policy."""
    reward = config.reward
    try:
        return Grader(
            reward.policy,
            workers=reward.workers,
            timeout_s=reward.timeout_s,
            memory_mib=reward.memory_mib,
        )
    except ValueError as error:
        raise UserError(f"config.reward: {error}") from error


def read_objective(config: Any) -> Objective:
    """Raises UserError for a part or a parameter that does not exist, or parts that do not fit."""
    try:
        return make_objective(**config.objective)
    except ValueError as error:
        raise UserError(f"config.objective: {error}") from error


def make_mesh(config: Any) -> Mesh:
    """Raises UserError where the mesh does not fit the devices."""
    try:
        return meshes.make_mesh(tuple(config.mesh))
    except ValueError as error:
        raise UserError(f"config.{error}") from error


def make_engine(
    config: Any, model: Model, mesh: Mesh, *, temperature: float, top_p: float
) -> Engine:
    """The sampler at the given sampling settings; the same one for the same settings."""
    rollout = config.rollout
    engine_config = EngineConfig(
        prompt_tokens=config.data.prompt_tokens,
        max_tokens=rollout.max_tokens,
        slots=rollout.slots,
        prefill_questions=rollout.prefill_questions,
        steps_per_dispatch=rollout.steps_per_dispatch,
        temperature=temperature,
        top_p=top_p,
        eos_ids=model.tokenizer.eos_ids,
        pad_id=model.tokenizer.pad_id,
        dtype=jnp.dtype(config.model.dtype),
    )
    try:
        return _engine(model.dims, engine_config, mesh)
    except ValueError as error:
        raise UserError(f"config.{error}") from error


# Training and evaluation that sample alike share one engine, and its compiled programs.
_engine = functools.lru_cache(maxsize=2)(Engine)


def make_updater(config: Any, model: Model, objective: Objective, mesh: Mesh) -> Updater:
    """The update; loads the reference policy where the objective compares with one."""
    shape = (
        config.questions // config.minibatches,
        config.responses,
        config.rollout.max_tokens,
    )
    longest = config.data.prompt_tokens + config.rollout.max_tokens - 1
    certain = config.packing.rows * (config.packing.row_tokens // longest)
    passes = Passes(
        model.dims,
        mesh,
        shape=shape,
        temperature=config.rollout.temperature,
        dtype=jnp.dtype(config.model.dtype),
        remat=config.model.remat,
        chunk=config.packing.head_chunk,
    )
    gradient = Gradient(passes, objective, single=certain >= shape[0] * shape[1])
    ref_params = None
    if objective.needs_ref:
        params = load_weights(model)
        ref_params = jax.device_put(params, meshes.shardings(mesh, params))
    try:
        return Updater(
            gradient,
            make_optimizer(**config.optimizer),
            row_tokens=config.packing.row_tokens,
            rows=config.packing.rows,
            ref_params=ref_params,
        )
    except ValueError as error:
        raise UserError(f"config.{error}") from error
