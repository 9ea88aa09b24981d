"""Seconds of whole steps of Algorithm 1: `python benchmarks/step.py`.

The workload: `tiny` (random weights), 8 prompts of 64 tokens, 8 responses each of up to 192 tokens
at temperature 0.6, then 4 updates of 16 responses; token 2 ends a response, and a response is right
when its tokens add up to an odd number. With `--ragged` prompts have 8 to 64 tokens, other lengths
in every step. Prints one JSON line: seconds and compiled programs of every step.
"""

import argparse
import time

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from measure import MODELS, Timer, emit

from disco_jax import heap
from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.objective.methods import METHODS
from disco_jax.objective.objective import make_objective
from disco_jax.rollout import scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.sampling import Sampling, response_keys
from disco_jax.update.gradient import Gradient
from disco_jax.update.optimizer import make_optimizer
from disco_jax.update.passes import Passes
from disco_jax.update.step import Updater

Q, N, P, T = 8, 8, 64, 192
UPDATES, TEMPERATURE, EOS = 4, 0.6, 2
DIMS = MODELS["tiny"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--devices", type=int, default=1, help="replicas that sample; CPU: cores")
    parser.add_argument("--ragged", action="store_true", help="prompts of 8 to 64 tokens")
    parser.add_argument("--method", choices=METHODS, default="disco_logl")
    return parser.parse_args()


def make_engine(mesh) -> Engine:
    config = EngineConfig(
        prompt_tokens=P, max_tokens=T, slots=Q * N, prefill_questions=Q, steps_per_dispatch=32,
        sampling=Sampling(TEMPERATURE), eos_ids=(EOS,), pad_id=0, dtype=jnp.float32,
        least_slots=Q * N, least_columns=64,  # most responses are as long as they may be
    )  # fmt: skip
    return Engine(DIMS, config, mesh)


def make_updater(mesh, method: str) -> Updater:
    """One micro-batch holds a minibatch, whatever the lengths: a row for each of its responses."""
    shape = (Q // UPDATES, N, T)
    passes = Passes(
        DIMS, mesh, shape=shape, temperature=TEMPERATURE, dtype=jnp.float32, remat="none",
        chunk=1024, scan=False,
    )  # fmt: skip
    gradient = Gradient(passes, make_objective(**METHODS[method], questions="all"), single=True)
    optimizer = make_optimizer(
        learning_rate=1e-6, warmup_steps=0, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01,
        clip_norm=1.0,
    )  # fmt: skip
    return Updater(gradient, optimizer, row_tokens=P + T, rows=shape[0] * N)


def prompts(step: int, ragged: bool) -> tuple[np.ndarray, np.ndarray]:
    """Left-padded prompts and their lengths."""
    rng = np.random.default_rng(step)
    length_Q = rng.integers(8, P + 1, Q) if ragged else np.full(Q, P)
    prompt_QP = rng.integers(16, DIMS.vocab, (Q, P))
    return np.where(np.arange(P) >= P - length_Q[:, None], prompt_QP, 0), length_Q


def main() -> None:
    args = arguments()
    jax.config.update("jax_num_cpu_devices", args.devices)
    heap.keep_freed_memory()
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, s, **_: (
            compiled.append(name) if name.endswith("backend_compile_duration") else 0
        )
    )
    begin = time.perf_counter()
    devices = jax.devices()[: args.devices]
    engine = make_engine(meshes.make_mesh((args.devices, 1, 1), devices))
    # Not data-parallel: one device of a CPU uses all cores, and devices that wait for one another
    # in a pool of as few threads can wait for ever.
    updater = make_updater(meshes.make_mesh((1, 1, 1), devices[:1]), args.method)
    params = jax.jit(transformer.init, static_argnames="dims")(jax.random.key(0), dims=DIMS)
    state = jax.block_until_ready(updater.init(params))
    init_s = time.perf_counter() - begin
    lengths, programs, timer = [], [], Timer()

    def one_step(step: int) -> None:
        nonlocal state
        before = len(compiled)
        prompt_QP, length_Q = prompts(step, args.ragged)
        key_QN = response_keys(0, "train", step, np.arange(Q), N)
        weights = engine.load_params(state.params)
        rollouts = scheduler.sample(engine, weights, prompt_QP, length_Q, key_QN)
        reward_QN = (rollouts.tokens_QNT.sum(-1) % 2).astype(np.float32)
        state, _ = jax.block_until_ready(updater.step(state, rollouts, reward_QN))
        lengths.append(float(rollouts.length_QN.mean()))
        programs.append(len(compiled) - before)

    for step in range(args.steps):
        timer.run(lambda step=step: one_step(step), 1)
    emit(
        bench="step",
        peer="disco_jax",
        jax=jax.__version__,
        model="tiny",
        case="ragged" if args.ragged else "full",
        opts=dict(devices=args.devices),
        init_s=round(init_s, 2),
        rl_step_s=[round(row[0], 2) for row in timer.rows],
        rl_step_cpu_s=[round(row[1], 2) for row in timer.rows],
        others_share=[round(row[2], 2) for row in timer.rows],
        mean_len=[round(length, 1) for length in lengths],
        compiled=programs,
    )


if __name__ == "__main__":
    main()
