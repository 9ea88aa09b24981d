"""How well one accelerator is used: `python benchmarks/device.py`, under 5 minutes on a GPU.

Random weights of DeepSeek-R1-Distill-Qwen-1.5B's sizes, bfloat16 products, float32 parameters.
Three JSON lines: the rate of a plain matrix product; an update of `--responses` responses of 1,024
+ 8,192 tokens, a row each (pi_old's figures not given: a forward pass, then forward, forward again
for the backward pass, backward, AdamW), with its share of that rate; and tokens per second of
decoding 256 slots. `--model tiny` runs the same in a minute on a CPU, to see that it works.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from measure import MODELS, emit, forward_flops

from disco_jax.model import attention, transformer
from disco_jax.model import mesh as meshes
from disco_jax.model.dims import ModelDims
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import make_objective
from disco_jax.rollout import scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.sampling import Sampling, response_keys
from disco_jax.types import Rollouts
from disco_jax.update.gradient import Gradient
from disco_jax.update.optimizer import make_optimizer
from disco_jax.update.passes import Passes
from disco_jax.update.step import Updater

QWEN = ModelDims(
    family="qwen2", vocab=151_936, width=1536, layers=28, heads=12, kv_heads=2, head_dim=128,
    mlp=8960, max_position=131_072,
)  # fmt: skip
N = 8


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("qwen1p5b", "tiny"), default="qwen1p5b")
    parser.add_argument("--responses", type=int, default=8, help="in the update")
    parser.add_argument("--repeats", type=int, default=2)
    return parser.parse_args()


def seconds(function, repeats: int) -> float:
    """Of the fastest of some calls, after one that compiles."""
    jax.block_until_ready(function())
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(function())
        found.append(time.perf_counter() - begin)
    return min(found)


def product_rate(size: int) -> float:
    """Floating-point operations per second of a bfloat16 product with float32 sums."""
    x = jnp.ones((size, size), jnp.bfloat16)
    product = jax.jit(lambda x: jnp.dot(x, x, preferred_element_type=jnp.float32))
    return 2 * size**3 / seconds(lambda: product(x), 5)


def make_updater(dims: ModelDims, mesh, shape, row_tokens: int) -> Updater:
    passes = Passes(
        dims, mesh, shape=shape, temperature=0.6, dtype=jnp.bfloat16, remat="full", chunk=1024,
        attention=attention.choose_backend("auto", dims, row_tokens, mesh),
    )  # fmt: skip
    objective = make_objective(**METHODS["disco_logl"], questions="all")
    optimizer = make_optimizer(
        learning_rate=2e-6, warmup_steps=0, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01,
        clip_norm=1.0,
    )  # fmt: skip
    return Updater(
        Gradient(passes, objective, single=False), optimizer, row_tokens=row_tokens, rows=1
    )


def measure_update(dims: ModelDims, mesh, P: int, T: int, args, peak: float) -> None:
    """An update of full-length responses; useful operations are 3 forward passes' worth."""
    Q, rng = args.responses // N, np.random.default_rng(0)
    rollouts = Rollouts(
        prompt_QP=rng.integers(0, dims.vocab, (Q, P)).astype(np.int32),
        prompt_length_Q=np.full(Q, P, np.int32),
        tokens_QNT=rng.integers(0, dims.vocab, (Q, N, T)).astype(np.int32),
        length_QN=np.full((Q, N), T, np.int32),
        ended_QN=np.zeros((Q, N), bool),
        logp_QNT=np.zeros((Q, N, T), np.float32),
    )
    updater = make_updater(dims, mesh, (Q, N, T), P + T)
    state = updater.init(jax.jit(transformer.init, static_argnums=1)(jax.random.key(0), dims))
    (minibatch,) = updater.minibatches(
        state.params, rollouts, np.tile(np.arange(N) % 2, (Q, 1)).astype(np.float32)
    )

    def update():
        nonlocal state
        state, metrics = updater.update(state, minibatch)
        return metrics

    wall = seconds(update, args.repeats)
    useful = 3 * forward_flops(dims, Q * N, P + T, T)
    memory = mesh.devices.flat[0].memory_stats() or {}
    emit(
        bench="device_update",
        device=mesh.devices.flat[0].device_kind,
        model=args.model,
        attention=attention.choose_backend("auto", dims, P + T, mesh),
        update_s=round(wall, 3),
        tokens_per_s=round(Q * N * (P + T) / wall, 1),
        tflops_useful=round(useful / wall / 1e12, 3),
        share_of_product=round(useful / wall / peak, 3),
        peak_device_gb=round(memory.get("peak_bytes_in_use", 0) / 2**30, 1),
    )


def measure_decode(dims: ModelDims, mesh, P: int, T: int, slots: int, args) -> None:
    config = EngineConfig(
        prompt_tokens=P, max_tokens=T, slots=slots, prefill_questions=slots // N,
        steps_per_dispatch=64, sampling=Sampling(0.6), eos_ids=(), pad_id=0, dtype=jnp.bfloat16,
        least_slots=slots, least_columns=P + T,
    )  # fmt: skip
    engine = Engine(dims, config, mesh)
    params = engine.load_params(
        jax.jit(transformer.init, static_argnums=1)(jax.random.key(0), dims)
    )
    Q = slots // N
    prompt_QP = np.random.default_rng(0).integers(0, dims.vocab, (Q, P))
    key_QN = response_keys(0, "train", 0, np.arange(Q), N)
    wall = seconds(
        lambda: scheduler.sample(engine, params, prompt_QP, np.full(Q, P), key_QN).length_QN,
        args.repeats,
    )
    emit(
        bench="device_decode",
        device=mesh.devices.flat[0].device_kind,
        model=args.model,
        slots=slots,
        prompt=P,
        new=T,
        tokens_per_s=round(slots * T / wall, 1),
    )


def main() -> None:
    args = arguments()
    real = args.model == "qwen1p5b"
    dims = QWEN if real else MODELS["tiny"]
    mesh = meshes.make_mesh((1, 1, 1), jax.devices()[:1])
    peak = product_rate(8192 if real else 512)
    emit(
        bench="device_product",
        device=mesh.devices.flat[0].device_kind,
        tflops=round(peak / 1e12, 3),
    )
    measure_update(dims, mesh, *((1024, 8192) if real else (32, 96)), args, peak)
    measure_decode(dims, mesh, *((512, 256, 256) if real else (16, 16, 8)), args)


if __name__ == "__main__":
    main()
