"""The programs of a run, as its own objects compile them, with arguments that are only shapes."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims
from disco_jax.model.lora import Adapted
from disco_jax.model.mesh import bytes_here
from disco_jax.pods import work
from disco_jax.pods.work import Work
from disco_jax.rollout.engine import Engine
from disco_jax.types import Batch
from disco_jax.update.packing import MicroBatch
from disco_jax.update.passes import Figures
from disco_jax.update.state import Placed, TrainState
from disco_jax.update.step import Updater

UPDATE = ("score", "slopes", "pull back", "gradient", "optimizer")
COPYING = ("merge", "load", "load layer")
ROLLOUT = (*COPYING, "prefill", "decode", "slide", "widen")
NAMES = (*UPDATE, *ROLLOUT)


class Program(NamedTuple):
    """One program to be compiled.

    Attributes:
      name: one of `NAMES`.
      lowered: what `jax.jit(...).lower(...)` returned.
      calls: how often it runs in a step of Algorithm 1 when every response reaches its limit.
      work: of one call on one device.
      beside: bytes of a device's memory that other live arrays take meanwhile.
      trips: how often its loops run that have no fixed count.
      gradient: whether its reductions over rows add up gradients.
    """

    name: str
    lowered: Any
    calls: int
    work: Work
    beside: float
    trips: int = 1
    gradient: bool = False


class Sizes(NamedTuple):
    """What the configuration says about a step.

    Attributes:
      questions, responses, minibatches: of a step, of all processes.
      prompt_tokens, max_tokens: the longest there may be.
      remat: as in `transformer.hidden_states`.
      head_chunk: tokens whose logits exist at once.
    """

    questions: int
    responses: int
    minibatches: int
    prompt_tokens: int
    max_tokens: int
    remat: str
    head_chunk: int


def placed(tree: Any, shardings: Any) -> Any:
    """The shapes of a tree with the places of its arrays; one place serves for all."""
    if isinstance(shardings, jax.sharding.Sharding):
        shardings = jax.tree.map(lambda _: shardings, tree)
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings
    )


def trained(updater: Updater, dims: ModelDims) -> Placed:
    """What training keeps, as `Updater.init` places it."""
    return updater.shapes(jax.eval_shape(lambda: transformer.init(jax.random.key(0), dims)))


def update_programs(updater: Updater, dims: ModelDims, sizes: Sizes) -> Iterator[Program]:
    """Lines 7 to 11: scoring, the slopes of the objective, pulling back, AdamW.

    "gradient" is both of the middle ones in one, where a micro-batch holds a whole minibatch.
    Moments that wait on the host are in memory only while the optimizer runs.
    """
    passes, gradient, mesh = updater.passes, updater.gradient, updater.mesh
    everywhere, rows = meshes.replicated(mesh), meshes.rows(mesh)
    base, state = trained(updater, dims)
    policy = state.params if base is None else Adapted(base, state.params)
    B, L, (Q, N, T) = updater.rows, updater.row_tokens, passes.shape
    micro = placed(
        MicroBatch(*(jax.ShapeDtypeStruct((B, L), jnp.int32) for _ in MicroBatch._fields)), rows
    )
    figures = placed(jax.eval_shape(passes.empty), everywhere)
    batch = placed(
        Batch(
            jax.ShapeDtypeStruct((Q, N, T), bool),
            jax.ShapeDtypeStruct((Q, N), jnp.float32),
            jax.ShapeDtypeStruct((Q, N, T), jnp.float32),
        ),
        everywhere,
    )
    tensor, replicas = mesh.shape["tensor"], mesh.shape["data"] * mesh.shape["fsdp"]
    longest = sizes.prompt_tokens + sizes.max_tokens - 1
    fit = L // longest  # whole sequences in a row
    load = work.Load(B * L / replicas, B * fit * T / replicas, (longest + 1) / 2, tensor)
    micros = -(-Q * N // (B * fit))
    scoring = work.forward(dims, load)
    pulling = work.backward(dims, load, sizes.remat, frozen=base is not None)
    trips = -(-L // min(L, max(1, sizes.head_chunk // (B // replicas))))
    moments = bytes_here(state.opt_state)
    held = sizes.minibatches * (
        bytes_here(figures) + bytes_here(batch) + micros * bytes_here(micro)
    )

    known_once = sizes.minibatches if gradient.single else 2 * sizes.minibatches - 1
    yield Program(
        "score", passes._score.lower(policy, micro, figures=figures),
        known_once * micros, scoring, moments + held, trips,
    )  # fmt: skip
    if gradient.single:
        lowered = gradient._whole.lower(policy, micro, batch)
        yield Program("gradient", lowered, sizes.minibatches, pulling, moments + held, trips, True)
        slopes = None
    else:
        slopes = Figures(figures.logp_QNT, None, None)
        if gradient.objective.needs_entropy:
            slopes = slopes._replace(entropy_QNT=figures.entropy_QNT)
        yield Program(
            "slopes", gradient.slopes.lower(figures, batch), sizes.minibatches,
            Work(0, 0, 8 * bytes_here(figures)), bytes_here((base, state)) + held,
        )  # fmt: skip
        yield Program(
            "pull back", passes._pull_back.lower(policy, micro, slopes, total=state.params),
            sizes.minibatches * micros, pulling, moments + held, trips, True,
        )  # fmt: skip
    moments_here = placed(state.opt_state, meshes.shardings(mesh, state.opt_state))
    fetched = TrainState(state.params, moments_here)
    yield Program(
        "optimizer", updater._apply.lower(fetched, state.params), sizes.minibatches,
        work.adamw(bytes_here(state.params) / work.FULL), bytes_here(base) + held,
    )  # fmt: skip


def rollout_programs(
    engine: Engine, dims: ModelDims, sizes: Sizes, updater: Updater, copying: Any
) -> Iterator[Program]:
    """Lines 5 and 6: the sampler's copy of the weights, prefill, decoding, and the sliding cache.

    The copy is made by all devices, the rest is each process's own, for its share of the questions.
    What is trained stays in memory; adapters are merged into a copy of their base first, which
    lives until the sampler's is there.

    Args:
      engine: of one process.
      copying: `processes.Copying` of the engine: programs `layer` and `rest`.
    """
    config, programs, mesh = engine.config, engine._programs, engine.mesh
    everywhere, rows = meshes.replicated(mesh), meshes.rows(mesh)
    S, R = config.slots, config.steps_per_dispatch
    sharing = updater.mesh.devices.size // mesh.devices.size
    questions = -(-sizes.questions // sharing)
    base, state = trained(updater, dims)
    trainer, policy, kept = bytes_here((base, state)), state.params, bytes_here(state.params)
    if base is not None:
        merge = updater._merge.lower(base, state.params)
        policy = placed(merge.out_info, meshes.shardings(updater.mesh, merge.out_info))
        moments = bytes_here(state.opt_state)
        yield Program("merge", merge, 1, Work(0, 0, bytes_here((base, policy))), moments)
        kept = 0

    tables = {name: x for name, x in policy.items() if name != "layers"}
    index = placed(jax.ShapeDtypeStruct((), jnp.int32), meshes.replicated(updater.mesh))
    load, load_layer = copying.rest.lower(tables), copying.layer.lower(policy["layers"], index)
    params = _outputs(load, everywhere)
    params["layers"] = (_outputs(load_layer, everywhere),) * dims.layers
    weights, one = bytes_here(params), bytes_here(params["layers"][0])
    beside = trainer - kept + bytes_here(policy)
    copied = bytes_here(tables)
    traffic = Work(0, 0, copied + weights - dims.layers * one)
    yield Program("load", load, 1, traffic, beside - copied)
    copied = bytes_here(policy["layers"])
    traffic = Work(0, 0, copied / dims.layers + one)
    yield Program(
        "load layer", load_layer, dims.layers, traffic, beside - copied + weights - one
    )  # fmt: skip

    widest = engine.column_sizes[-1]
    decode_state = _outputs(programs.init.lower(slots=S, past=widest), rows)
    cache = bytes_here(decode_state)
    Q, P = config.prefill_questions, engine.prompt_sizes[-1]
    prompts = [
        placed(jax.ShapeDtypeStruct(shape, jnp.int32), everywhere) for shape in ((Q, P), (Q,))
    ]
    yield Program(
        "prefill", programs.prefill.lower(params, *prompts), -(-questions // Q),
        work.prefill(dims, Q * P, P, weights), trainer + cache,
    )  # fmt: skip
    per_replica = placed(jax.ShapeDtypeStruct((engine.replicas,), jnp.int32), rows)
    waves = -(-questions * sizes.responses // S)
    dispatches = waves * -(-sizes.max_tokens // R)
    decoding = work.decode(
        dims, S / engine.replicas, sizes.prompt_tokens + sizes.max_tokens / 2, R, weights
    )
    yield Program(
        "decode", programs.decode.lower(params, decode_state, per_replica, per_replica),
        dispatches, decoding, trainer, R,
    )  # fmt: skip
    yield Program(
        "slide", programs.slide_here.lower(decode_state, past=widest), dispatches,
        Work(0, 0, 2 * cache), trainer + weights,
    )  # fmt: skip
    *_, before, _ = (0, *engine.column_sizes)
    if before:
        narrower = _outputs(programs.init.lower(slots=S, past=before), rows)
        yield Program(
            "widen", programs.slide.lower(narrower, past=widest),
            waves * (len(engine.column_sizes) - 1), Work(0, 0, 2 * cache), trainer + weights,
        )  # fmt: skip


def _outputs(lowered: Any, place: Any) -> Any:
    """What a program returns, placed."""
    return placed(lowered.out_info, place)
