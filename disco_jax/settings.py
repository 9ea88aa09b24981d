"""Checks of a whole configuration, before any expensive work.

Every error names the key, its value, what is allowed, and, for keys that must fit one another,
both values.
"""

import math
from collections.abc import Callable
from typing import Any

from disco_jax.command import UserError
from disco_jax.model import attention, transformer

Check = tuple[str, Callable[[Any], bool], str]


def _at_least(least: float) -> tuple[Callable[[Any], bool], str]:
    return lambda x: math.isfinite(x) and x >= least, f"at least {least}"


def _positive() -> tuple[Callable[[Any], bool], str]:
    return lambda x: math.isfinite(x) and x > 0, "above 0"


def _one_of(*names: str) -> tuple[Callable[[Any], bool], str]:
    return lambda x: x in names, " | ".join(names)


_PROBABILITY = (lambda x: 0 < x <= 1, "in (0, 1]")
_MOMENT = (lambda x: 0 <= x < 1, "in [0, 1)")

CHECKS: list[Check] = [
    ("seed", lambda x: 0 <= x < 2**31, "in [0, 2**31)"),
    ("steps", *_at_least(1)),
    ("questions", *_at_least(1)),
    ("responses", lambda n: n >= 2, "at least 2: an objective compares responses to a question"),
    ("minibatches", *_at_least(1)),
    ("model.dtype", *_one_of("float32", "bfloat16")),
    ("model.remat", *_one_of(*transformer.REMAT)),
    ("model.attention", *_one_of("auto", *attention.BACKENDS)),
    ("model.lora_rank", *_at_least(0)),
    ("model.lora_alpha", *_positive()),
    ("data.template", *_one_of("auto", "chat", "raw")),
    ("data.think", *_one_of("template", "open", "none")),
    ("data.prompt_tokens", *_at_least(1)),
    ("data.too_long", *_one_of("drop", "refuse")),
    ("data.ungradable", *_one_of("refuse", "drop")),
    (
        "data.difficulty",
        lambda r: len(r) == 2 and 0 <= r[0] <= r[1] <= 1,
        "two success rates in [0, 1], the lower one first",
    ),
    ("reward.workers", *_at_least(1)),
    ("reward.timeout_s", *_positive()),
    ("reward.memory_mib", *_at_least(64)),
    ("rollout.temperature", lambda x: 0 < x < math.inf, "above 0 (greedy responses cannot differ)"),
    ("rollout.top_k", *_at_least(0)),
    ("rollout.top_p", *_PROBABILITY),
    ("rollout.min_p", *_MOMENT),
    ("rollout.max_tokens", *_at_least(1)),
    ("rollout.slots", *_at_least(0)),
    ("rollout.prefill_questions", *_at_least(1)),
    ("rollout.steps_per_dispatch", *_at_least(1)),
    ("rollout.least_slots", *_at_least(1)),
    ("rollout.least_columns", *_at_least(1)),
    ("rollout.refills", *_at_least(0)),
    ("rollout.backend", *_one_of("native", "jetstream")),
    ("optimizer.learning_rate", *_positive()),
    ("optimizer.warmup_steps", *_at_least(0)),
    ("optimizer.b1", *_MOMENT),
    ("optimizer.b2", *_MOMENT),
    ("optimizer.eps", *_positive()),
    ("optimizer.weight_decay", *_at_least(0)),
    ("optimizer.clip_norm", *_positive()),
    ("packing.row_tokens", *_at_least(1)),
    ("packing.rows", *_at_least(1)),
    ("packing.head_chunk", *_at_least(1)),
    (
        "mesh",
        lambda m: len(m) == 3 and all(type(x) is int and (x == -1 or x >= 1) for x in m),
        "three whole numbers (data, fsdp, tensor), at most one of them -1",
    ),
    ("eval.every", *_at_least(1)),
    ("eval.samples", *_at_least(1)),
    ("eval.temperature", *_at_least(0)),
    ("eval.top_k", *_at_least(0)),
    ("eval.top_p", *_PROBABILITY),
    ("eval.min_p", *_MOMENT),
    ("eval.max_tokens", *_at_least(1)),
    ("eval.select", *_one_of("heldout", "benchmarks")),
    ("checkpoint.every", *_at_least(1)),
    ("checkpoint.keep", *_at_least(1)),
    ("log.gap_alarm", *_positive()),
    ("log.rollouts_every", *_at_least(1)),
]

# Keys that may differ from the run that a workdir holds; any other change needs a new workdir.
FREE_TO_CHANGE = (
    "steps",
    "eval.every",
    "checkpoint.",
    "log.",
    "reward.workers",
    "mesh",
)


def check(config: Any, train: bool = True) -> None:
    """Raises UserError at the first value out of range, or pair of values that do not fit.

    Args:
      train: whether the keys of the update have to fit one another, too.
    """
    for key, allowed, text in CHECKS:
        value = value_of(config, key)
        try:
            good = bool(allowed(value))
        except TypeError:
            good = False
        if not good:
            raise UserError(f"config.{key}={value!r}: must be {text}")
    if tuple(config.data.difficulty) != (0.0, 1.0) and not config.data.success:
        raise UserError(
            f"config.data.difficulty={tuple(config.data.difficulty)} needs success rates: name an"
            " evaluation of the training set in config.data.success"
        )
    for key in ("benchmarks", "select"):
        asked = config.eval[key] not in ("", "heldout")
        if asked and not (config.data.benchmarks and config.eval.benchmarks):
            raise UserError(
                f"config.eval.{key}={config.eval[key]!r} needs config.data.benchmarks="
                f"{config.data.benchmarks!r} to be the folder of the six files, and"
                f" config.eval.benchmarks={config.eval.benchmarks!r} to name some of them, or all"
            )
    if train:
        _check_update(config)


def _check_update(config: Any) -> None:
    if config.questions % config.minibatches:
        raise UserError(
            f"config.questions={config.questions} is not a multiple of"
            f" config.minibatches={config.minibatches}"
        )
    longest = config.data.prompt_tokens + config.rollout.max_tokens - 1
    if config.packing.row_tokens < longest:
        raise UserError(
            f"config.packing.row_tokens={config.packing.row_tokens} cannot hold the longest"
            f" sequence: data.prompt_tokens={config.data.prompt_tokens} +"
            f" rollout.max_tokens={config.rollout.max_tokens} - 1 = {longest}"
        )


def value_of(config: Any, key: str) -> Any:
    """The value of a dotted key."""
    for part in key.split("."):
        config = config[part]
    return config


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The keys of flattened configurations that differ and may not, as `key: old -> new`."""
    return [
        f"config.{key}: {old.get(key)!r} -> {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not key.startswith(FREE_TO_CHANGE)
    ]
