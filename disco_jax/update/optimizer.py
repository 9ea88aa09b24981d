"""AdamW with clipping by the global norm, as the paper trains (section 6)."""

import jax.numpy as jnp
import optax


def make_schedule(learning_rate: float, warmup_steps: int) -> optax.Schedule:
    """Updates done so far -> rate: linear for `warmup_steps` updates, then constant."""
    return lambda count: learning_rate * jnp.minimum((count + 1) / max(warmup_steps, 1), 1.0)


def make_optimizer(
    *,
    learning_rate: float,
    warmup_steps: int,
    b1: float,
    b2: float,
    eps: float,
    weight_decay: float,
    clip_norm: float,
) -> optax.GradientTransformation:
    """AdamW; decay on every parameter, as in the official code.

    Args:
      learning_rate: constant after the warm-up.
      warmup_steps: optimiser steps of linear warm-up; the first of them already moves (the
        official code spends its first step at a rate of 0).
      clip_norm: the gradient is scaled down to this global norm.
    """

    return optax.chain(
        optax.clip_by_global_norm(clip_norm),
        optax.adamw(
            make_schedule(learning_rate, warmup_steps),
            b1=b1,
            b2=b2,
            eps=eps,
            weight_decay=weight_decay,
        ),
    )
