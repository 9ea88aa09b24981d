"""Tokens per second and memory of one update: `python benchmarks/update.py --model tiny`.

The workload: 64 sequences of 64 + 192 tokens through `tiny`, 16 of 64 + 64 through `smol` (random
weights of SmolLM2-135M's sizes). An update is the forward and backward passes and AdamW, by the
very `Updater` of training, pi_old's log-probabilities given; tokens are prompt + response. Prints
one JSON line for pi_old's log-probabilities, one for the update.
"""

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from measure import MODELS, Timer, emit, forward_flops, resident_mb

from disco_jax import heap
from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import make_objective
from disco_jax.types import Rollouts
from disco_jax.update.gradient import Gradient
from disco_jax.update.optimizer import make_optimizer
from disco_jax.update.passes import Passes
from disco_jax.update.step import Updater

N = 8
SHAPES = {"tiny": (64, 64, 192), "smol": (16, 64, 64)}  # sequences, prompt, response
ADAMW = dict(
    learning_rate=1e-6, warmup_steps=0, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01, clip_norm=1.0
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rows", type=int, default=4, help="sequences in a device's micro-batch")
    parser.add_argument("--devices", type=int, default=1, help="data-parallel; CPU: cores")
    parser.add_argument("--remat", choices=transformer.REMAT, default="none")
    parser.add_argument("--scan", action="store_true", help="one compiled layer for all")
    parser.add_argument("--head_chunk", type=int, default=1024)
    parser.add_argument("--method", choices=METHODS, default="disco_logl")
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def synthetic(model: str) -> tuple[Rollouts, np.ndarray]:
    """Full-length random rollouts, and rewards right and wrong in every group."""
    rng = np.random.default_rng(0)
    sequences, P, T = SHAPES[model]
    Q = sequences // N
    tokens_QNT = rng.integers(16, MODELS[model].vocab, (Q, N, T)).astype(np.int32)
    rollouts = Rollouts(
        prompt_QP=rng.integers(16, MODELS[model].vocab, (Q, P)).astype(np.int32),
        prompt_length_Q=np.full(Q, P, np.int32),
        tokens_QNT=tokens_QNT,
        length_QN=np.full((Q, N), T, np.int32),
        ended_QN=np.zeros((Q, N), bool),
        logp_QNT=np.zeros((Q, N, T), np.float32),
    )
    return rollouts, np.tile(np.arange(N) % 2, (Q, 1)).astype(np.float32)


def make_updater(args: argparse.Namespace, shape: tuple[int, int, int], row_tokens: int) -> Updater:
    mesh = meshes.make_mesh((args.devices, 1, 1), jax.devices()[: args.devices])
    passes = Passes(
        MODELS[args.model], mesh, shape=shape, temperature=1.0, dtype=jnp.dtype(args.dtype),
        remat=args.remat, chunk=args.head_chunk, scan=args.scan,
    )  # fmt: skip
    objective = make_objective(**METHODS[args.method], questions="all")
    rows = args.rows * args.devices
    gradient = Gradient(passes, objective, single=rows >= shape[0] * shape[1])
    return Updater(gradient, make_optimizer(**ADAMW), row_tokens=row_tokens, rows=rows)


def main() -> None:
    args = arguments()
    jax.config.update("jax_num_cpu_devices", args.devices)
    heap.keep_freed_memory()
    dims = MODELS[args.model]
    sequences, P, T = SHAPES[args.model]
    before = resident_mb()
    rollouts, reward_QN = synthetic(args.model)
    updater = make_updater(args, rollouts.tokens_QNT.shape, P + T)
    state = updater.init(transformer.init(jax.random.key(0), dims))
    begin = time.perf_counter()
    (minibatch,) = updater.minibatches(state.params, rollouts, reward_QN)
    jax.block_until_ready(minibatch.old)
    state, _ = jax.block_until_ready(updater.update(state, minibatch, minibatch.old))
    first_s = time.perf_counter() - begin

    def old():
        return jax.block_until_ready(updater.passes.figures(state.params, minibatch.micros))

    def update():
        nonlocal state
        state, metrics = jax.block_until_ready(updater.update(state, minibatch, minibatch.old))
        return metrics

    tokens = sequences * (P + T)
    flops = forward_flops(dims, sequences, P + T, T)
    for bench, function, passes in (("old_logprob", old, 1), ("update", update, 3)):
        timer = Timer()
        timer.run(function, args.repeats)
        wall, own, _ = min(timer.rows)
        emit(
            bench=bench,
            peer="disco_jax",
            jax=jax.__version__,
            model=args.model,
            dtype=args.dtype,
            opts={k: v for k, v in vars(args).items() if k not in ("model", "dtype", "repeats")},
            first_s=round(first_s, 2),
            **timer.summary(tokens, "tokens"),
            cpu_us_per_token=round(1e6 * own / tokens, 2),
            gflops_best=round(passes * flops / wall / 1e9, 1),
            rss_before_mb=round(before),
        )


if __name__ == "__main__":
    sys.exit(main())
