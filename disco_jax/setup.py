"""From a configuration to what a run is made of: tokenizer, questions, model, mesh, programs."""

import math
import os
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

import disco_jax
from disco_jax.command import UserError
from disco_jax.data import prompts
from disco_jax.data.prompts import Tokenizer
from disco_jax.model import attention, weights
from disco_jax.model import mesh as meshes
from disco_jax.model.dims import ModelDims
from disco_jax.model.lora import Lora
from disco_jax.objective.objective import Objective, make_objective
from disco_jax.report.counter import Counter
from disco_jax.report.progress import Progress
from disco_jax.reward import Grader
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
    raise UserError(f"model {path!r}: neither a folder nor an embedded model ({embedded})")


def find_model(config: Any, path: str = "") -> Model:
    """Reads the tokenizer and the sizes (not the weights) of a policy.

    Args:
      path: its folder or embedded name; `config.model.path` by default.

    Raises:
      UserError: no such model, or one that does not fit the configuration.
    """
    path = path or config.model.path
    folder = model_folder(path)
    try:
        dims = weights.read_dims(folder)
        tokenizer = prompts.load_tokenizer(str(folder), config.data.template, config.data.think)
    except (OSError, ValueError) as error:
        raise UserError(f"model {path!r}: {error}") from error
    response = max(config.rollout.max_tokens, config.eval.max_tokens)
    if tokenizer.size > dims.vocab:
        raise UserError(
            f"model {path!r}: its tokenizer has {tokenizer.size} tokens, the model"
            f" {dims.vocab}; they do not belong together"
        )
    if config.data.prompt_tokens + response > dims.max_position:
        raise UserError(
            f"config.data.prompt_tokens={config.data.prompt_tokens} and responses of {response}"
            f" tokens (the larger of config.rollout.max_tokens={config.rollout.max_tokens} and"
            f" config.eval.max_tokens={config.eval.max_tokens}) exceed the model's"
            f" {dims.max_position} positions"
        )
    return Model(folder, tokenizer, dims)


def placed_weights(model: Model, mesh: Mesh, progress: Progress | None = None) -> dict[str, Any]:
    """The parameters, read straight to where the mesh's table has them.

    Raises:
      UserError: the files do not hold them.
    """
    count = Counter("loading", "MiB", say=progress.say) if progress else lambda done, total: None
    try:
        return weights.load(
            model.folder,
            model.dims,
            meshes.shardings(mesh, weights.shapes(model.dims)),
            on_tensor=lambda name, done, total: count(done >> 20, total >> 20),
        )
    except (OSError, ValueError) as error:
        raise UserError(f"model {str(model.folder)!r}: {error}") from error


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


THREADS = 4  # per CPU device: fewer can all be taken by collectives that wait for one another


def make_mesh(config: Any) -> Mesh:
    """The run's mesh. On a CPU it may leave devices out, which then only sample.

    Raises:
      UserError: the mesh does not fit the devices, or its devices are of a CPU and could wait for
        one another for ever.
    """
    shape, devices = tuple(config.mesh), jax.devices()
    cpu = devices[0].platform == "cpu"
    if cpu and jax.process_count() == 1 and min(shape) > 0:
        devices = devices[: math.prod(shape)]
    try:
        mesh = meshes.make_mesh(shape, devices)
    except ValueError as error:
        raise UserError(f"config.{error}") from error
    here = len(mesh.local_devices)
    threads = int(os.environ.get("NPROC", os.cpu_count() or 1))
    if cpu and here > 1 and threads < THREADS * here:
        raise UserError(
            f"config.mesh={shape}: {here} devices of one CPU wait for one another in a pool of"
            f" {threads} threads, and may do so for ever. --config.mesh='(1,1,1)' updates on one,"
            f" which uses every core, and samples on all; or set NPROC={THREADS * here} for a"
            " larger pool, which is slower"
        )
    return mesh


def read_lora(config: Any) -> Lora | None:
    """The adapters that training trains; None where it trains the model.

    Raises:
      UserError: adapters for matrices that there are not.
    """
    model = config.model
    if not model.lora_rank:
        return None
    try:
        return Lora(model.lora_rank, model.lora_alpha, tuple(model.lora_targets))
    except ValueError as error:
        raise UserError(f"config.{error}") from error


def make_updater(config: Any, model: Model, objective: Objective, mesh: Mesh) -> Updater:
    """The update; loads the reference policy where the objective compares with one."""
    shape = (
        config.questions // config.minibatches,
        config.responses,
        config.rollout.max_tokens,
    )
    packing, optimizer = config.packing, dict(config.optimizer)
    longest = config.data.prompt_tokens + config.rollout.max_tokens - 1
    rows = packing.rows * mesh.shape["data"] * mesh.shape["fsdp"]
    certain = rows * (packing.row_tokens // longest)
    policy, lora = config.model, read_lora(config)
    try:
        needs_ref = objective.needs_ref and lora is None  # adapters are compared with their base
        passes = Passes(
            model.dims,
            mesh,
            shape=shape,
            temperature=config.rollout.temperature,
            dtype=jnp.dtype(policy.dtype),
            remat=policy.remat,
            scan=policy.scan,
            attention=attention.choose_backend(
                policy.attention, model.dims, packing.row_tokens, mesh
            ),
            chunk=packing.head_chunk,
            lora=lora,
        )
        gradient = Gradient(passes, objective, single=certain >= shape[0] * shape[1])
        offload = optimizer.pop("offload")
        return Updater(
            gradient,
            make_optimizer(**optimizer),
            row_tokens=packing.row_tokens,
            rows=rows,
            ref_params=placed_weights(model, mesh) if needs_ref else None,
            offload=offload,
        )
    except ValueError as error:
        raise UserError(f"config.{error}") from error
