"""New tokens per second of grouped rollouts: `python benchmarks/rollout.py --model tiny`.

The workload: 16 prompts of 64 tokens, 8 responses each, at temperature 0.6 (random weights); 256
new tokens on `tiny`, 64 on `smol` (the sizes of SmolLM2-135M), or geometric lengths with
`--ragged`. No token ends a response: lengths are limits, so that every sampler makes the same
number of tokens. Sampled by the very scheduler of training, log-probabilities returned. Every
mechanism has a switch that turns it off. Prints one JSON line.
"""

import argparse
import math
import random
import time

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
from measure import MODELS, Timer, emit, resident_mb

from disco_jax import heap
from disco_jax.model import mesh as meshes
from disco_jax.model import transformer
from disco_jax.rollout import scheduler
from disco_jax.rollout.engine import Engine, EngineConfig
from disco_jax.rollout.sampling import Sampling, response_keys

NEW = {"tiny": 256, "smol": 64}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--responses", type=int, default=8, help="N, to every question")
    parser.add_argument("--prompt", type=int, default=64, help="prompt tokens")
    parser.add_argument("--new", type=int, default=0, help="most new tokens")
    parser.add_argument("--ragged", type=int, default=0, help="mean of geometric lengths; 0: fixed")
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--steps", type=int, default=64, help="decoding steps per dispatch")
    parser.add_argument("--least_slots", type=int, default=4)
    parser.add_argument("--least_columns", type=int, default=64)
    parser.add_argument("--no-compaction", action="store_true", help="finished slots stay")
    parser.add_argument("--no-live-columns", action="store_true", help="the whole cache is read")
    parser.add_argument("--no-sharing", action="store_true", help="a prefill for every response")
    parser.add_argument("--no-refill", action="store_true", help="slots wait for the slowest")
    parser.add_argument("--devices", type=int, default=1, help="replicas of slots; CPU: cores")
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def geometric_lengths(count: int, mean: int, most: int) -> np.ndarray:
    """Lengths of responses that end with probability 1/mean at every token."""
    draw = random.Random(1).random
    ratio = math.log(1 - 1 / mean)
    return np.array([min(most, 1 + int(math.log(1 - draw()) / ratio)) for _ in range(count)])


class Workload:
    """Prompts, limits, and the engine that samples the responses."""

    def __init__(self, args: argparse.Namespace):
        self.args, dims = args, MODELS[args.model]
        Q, N, T = args.questions, args.responses, args.new or NEW[args.model]
        self.limit_QN = np.full((Q, N), T)
        if args.ragged:
            self.limit_QN = geometric_lengths(Q * N, args.ragged, T).reshape(Q, N)
        self.prompt_QP = np.random.default_rng(0).integers(16, dims.vocab, (Q, args.prompt))
        if args.no_sharing:
            self.prompt_QP = np.repeat(self.prompt_QP, N, axis=0)
            self.limit_QN = self.limit_QN.reshape(Q * N, 1)
        config = EngineConfig(
            prompt_tokens=args.prompt,
            max_tokens=T,
            slots=args.slots,
            prefill_questions=min(16, len(self.prompt_QP)),
            steps_per_dispatch=args.steps,
            sampling=Sampling(0.6),
            eos_ids=(),
            pad_id=0,
            dtype=jnp.dtype(args.dtype),
            least_slots=args.slots if args.no_compaction else args.least_slots,
            least_columns=args.prompt + T if args.no_live_columns else args.least_columns,
        )
        mesh = meshes.make_mesh((args.devices, 1, 1), jax.devices()[: args.devices])
        self.engine = Engine(dims, config, mesh)
        params = jax.jit(transformer.init, static_argnames="dims")(jax.random.key(0), dims=dims)
        self.params = jax.block_until_ready(self.engine.load_params(params))

    def run(self, step: int) -> scheduler.Stats:
        stats = scheduler.Stats()
        Q, N = self.limit_QN.shape
        key_QN = response_keys(0, "train", step, np.arange(Q), N)
        size = max(1, self.args.slots // N) if self.args.no_refill else Q
        for first in range(0, Q, size):
            rows = slice(first, first + size)
            prompt_QP = self.prompt_QP[rows]
            found = scheduler.sample(
                self.engine,
                self.params,
                prompt_QP,
                np.full(len(prompt_QP), self.args.prompt),
                key_QN[rows],
                limit_QN=self.limit_QN[rows],
                stats=stats,
            )
            assert (found.length_QN == self.limit_QN[rows]).all()
        return stats


def main() -> None:
    args = arguments()
    jax.config.update("jax_num_cpu_devices", args.devices)
    heap.keep_freed_memory()
    compiled: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, s, **_: compiled.append(s) if name.endswith("backend_compile_duration") else 0
    )
    workload = Workload(args)
    base = resident_mb()
    compiled.clear()
    begin = time.perf_counter()
    workload.run(0)
    first = time.perf_counter() - begin
    programs, compile_s = len(compiled), sum(compiled)
    timer = Timer()
    stats = timer.run(lambda: workload.run(1), args.repeats)
    best, tokens = min(row[0] for row in timer.rows), int(workload.limit_QN.sum())
    emit(
        bench="rollout",
        peer="disco_jax",
        jax=jax.__version__,
        model=args.model,
        dtype=args.dtype,
        case="ragged" if args.ragged else "full",
        opts={k: v for k, v in vars(args).items() if k not in ("model", "dtype", "repeats")},
        first_s=round(first, 2),
        compiled=programs,
        compile_s=round(compile_s, 2),
        recompiled=len(compiled) - programs,
        new_tokens=tokens,
        **timer.summary(tokens, "tokens"),
        cpu_us_per_token=round(1e6 * min(row[1] for row in timer.rows) / tokens, 2),
        prefill_share=round(stats.prefill_s / timer.rows[-1][0], 3),
        decode_share=round(stats.decode_s / timer.rows[-1][0], 3),
        best_s=round(best, 3),
        occupancy=round(stats.occupancy, 3),
        wasted=round(stats.wasted, 3),
        dispatches=stats.dispatches,
        slides=stats.slides,
        compactions=stats.compactions,
        rss_before_mb=round(base),
    )


if __name__ == "__main__":
    main()
