"""From a configuration to the sampler of a process: its engine, its share of the slots, what drives
it, and evaluations with it."""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from disco_jax import processes, setup
from disco_jax.answers import Evaluator, Sampler
from disco_jax.command import UserError
from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims
from disco_jax.reward import Grader
from disco_jax.rollout import memory, scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.sampling import Sampling
from disco_jax.setup import Model
from disco_jax.update.optimizer import make_optimizer
from disco_jax.update.state import place_shapes


def make_sampler(config: Any) -> Sampler:
    """What drives the engine: our scheduler, or JetStream's Driver.

    Raises:
      UserError: JetStream is wanted and not installed.
    """
    if config.rollout.backend == "native":
        return scheduler.sample
    try:
        from disco_jax.rollout import jetstream_driver
    except ImportError as error:
        raise missing_extra("config.rollout.backend='jetstream'", error) from error
    return jetstream_driver.sample


def missing_extra(what: str, error: ImportError) -> UserError:
    """That `what` needs JetStream, and how to get it."""
    return UserError(
        f"{what} needs the extra [jetstream], google-jetstream 0.2.2 ({error}). Install it with pip"
        " install -c requirements/constraints-jetstream.txt -e '.[jetstream]'; it brings TensorFlow"
    )


def make_engine(
    config: Any,
    model: Model,
    mesh: Mesh,
    sampling: Any,
    *,
    training: bool = False,
    own: Mesh | None = None,
    free: int | None = None,
) -> Engine:
    """The sampler of this process, with its share of the slots; the same for the same settings.

    Args:
      mesh: of the run.
      sampling: `config.rollout` or `config.eval`: temperature, top_k, top_p, min_p, max_tokens.
      training: the state of the training is in memory, too.
      own: of one process's devices; by default of this one's.
      free: bytes of one device, before anything is there; by default as this one says.

    Raises:
      UserError: the slots do not divide over processes and devices, or none fits.
    """
    rollout = config.rollout
    own = processes.own_mesh(mesh) if own is None else own
    try:
        if rollout.slots:
            slots = memory.share(rollout.slots, _sharing(mesh, own), own)
        else:
            slots = _fit_slots(config, model, mesh, own, sampling, training, free)
    except ValueError as error:
        raise UserError(f"config.{error}") from error
    engine_config = EngineConfig(
        prompt_tokens=config.data.prompt_tokens,
        max_tokens=sampling.max_tokens,
        slots=slots,
        # JetStream prefills prompts one by one.
        prefill_questions=rollout.prefill_questions if rollout.backend == "native" else 1,
        steps_per_dispatch=rollout.steps_per_dispatch,
        sampling=Sampling(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p),
        eos_ids=model.tokenizer.eos_ids,
        pad_id=model.tokenizer.pad_id,
        dtype=jnp.dtype(config.model.dtype),
        least_slots=rollout.least_slots,
        least_columns=rollout.least_columns,
    )
    return _engine(model.dims, engine_config, own)


def _sharing(mesh: Mesh, own: Mesh) -> int:
    """Processes that share the slots."""
    return max(1, mesh.devices.size // own.devices.size)


def _fit_slots(config, model: Model, mesh: Mesh, own: Mesh, sampling, training, free) -> int:
    """A process's slots that memory allows, with the arithmetic printed; ValueError if none."""
    rollout, sharing = config.rollout, _sharing(mesh, own)
    fit = memory.fit_slots(
        model.dims,
        own,
        columns=config.data.prompt_tokens + sampling.max_tokens + rollout.steps_per_dispatch,
        dtype=jnp.dtype(config.model.dtype),
        free=memory.free_bytes(own) if free is None else free,
        beside=training_bytes(config, model.dims, mesh) if training else 0,
        most=-(-config.questions // sharing) * config.responses,
    )
    if jax.process_index() == 0:
        print(f"rollout.slots=0: {fit.why}", file=sys.stderr)
    return fit.slots


# Training and evaluation that sample alike share one engine, and its compiled programs.
_engine = functools.lru_cache(maxsize=2)(Engine)


def training_bytes(config: Any, dims: ModelDims, mesh: Mesh) -> int:
    """Bytes on each device of what training keeps between its programs: the parameters and the
    moments, the base of adapters, and the reference policy where the objective needs one.

    Args:
      mesh: of the run.
    """
    params = jax.eval_shape(lambda: transformer.init(jax.random.key(0), dims))
    optimizer, lora = dict(config.optimizer), setup.read_lora(config)
    offload = optimizer.pop("offload")
    placed = place_shapes(
        params,
        mesh,
        make_optimizer(**optimizer),
        dtype=jnp.dtype(config.model.dtype),
        spec=lora,
        offload=offload,
    )
    found = meshes.bytes_here(placed)
    if setup.read_objective(config).needs_ref and lora is None:
        found += meshes.bytes_here(placed.state.params)
    return found


def make_evaluator(
    config: Any, model: Model, mesh: Mesh, grader: Grader, *, training: bool = False
) -> Evaluator:
    """Evaluations as `config.eval` has them; see `make_engine`."""
    return Evaluator(
        make_sampler(config),
        make_engine(config, model, mesh, config.eval, training=training),
        model.tokenizer,
        grader,
        config.seed,
        config.eval.samples,
        config.reward.policy,
    )
