"""Sums and means over a mask, and exponentials that stay finite.

What lies under a mask may be anything, inf and nan included: values are selected, never multiplied
by zero. An empty mask gives 0.
"""

import jax
import jax.numpy as jnp

LINEAR_FROM = 20.0  # e^20 = 5e8: no probability ratio of interest is as large


def total(x, where, axis=None):
    """Sum over the True entries of `where`, which has the shape of `x`."""
    return jnp.sum(x, axis, where=where)


def count(where, like, axis=None):
    """Number of True entries, in the dtype of `like`: counts never widen a float32 result."""
    return jnp.sum(where, axis, dtype=like.dtype)


def mean(x, where, axis=None):
    """Mean over the True entries of `where`, which has the shape of `x`."""
    return total(x, where, axis) / jnp.maximum(count(where, x, axis), 1)


def exp(x):
    """e^x up to x = 20, its tangent from there on: convex, increasing, smooth, never overflowing.

    A token whose ratio has run away keeps a finite value and a gradient that points back.
    """
    return jnp.exp(jnp.minimum(x, LINEAR_FROM)) * (1 + jnp.maximum(x - LINEAR_FROM, 0))


def soft_maximum(x, where, tau):
    """tau log mean exp(x / tau) on the last axis: the maximum as tau -> 0, the mean as tau -> inf.

    The largest entry is taken out, so that nothing overflows; and log1p(mean(expm1(.))) instead of
    log(mean(exp(.))) keeps small entries, so that a large tau gives the mean in float32 too.
    """
    # Fused into two places, x could be rounded in two ways and its largest entry not cancel.
    x = jax.lax.optimization_barrier(x)
    top = jax.lax.stop_gradient(jnp.max(x, -1, keepdims=True, where=where, initial=-jnp.inf))
    below = jnp.where(where, x - top, 0) / tau
    above = tau * jnp.log1p(mean(jnp.expm1(below), where, -1))
    return jnp.where(where.any(-1), top[..., 0], 0) + above
