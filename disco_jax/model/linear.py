"""The matrix product of the decoder: accumulated in float32, forward and backward.

Operands are of the activations' dtype, every result leaves the product as float32: a bfloat16
result would have the devices add up gradients in bfloat16 (seen in compiled programs), and is
several times slower on CPU.
"""

import jax
import jax.numpy as jnp

Array = jax.Array


def _dot(a: Array, b: Array, axes: tuple) -> Array:
    return jax.lax.dot_general(a, b, (axes, ((), ())), preferred_element_type=jnp.float32)


@jax.custom_vjp
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x @ weight + bias over the last axis of x, in the dtype of x.

    Args:
      x: [..., rows].
      weight: [rows, columns] in any dtype: cast to that of x; its gradient is float32 where it is.
      bias: [columns] or None.
    """
    y = _dot(x, weight.astype(x.dtype), ((x.ndim - 1,), (0,)))
    return (y if bias is None else y + bias).astype(x.dtype)


def _forward(x: Array, weight: Array, bias: Array | None):
    return linear(x, weight, bias), (x, weight, bias)


def _backward(saved: tuple, slope: Array):
    x, weight, bias = saved
    tokens = tuple(range(x.ndim - 1))
    dx = _dot(slope, weight.astype(slope.dtype), ((x.ndim - 1,), (1,)))
    dweight = _dot(x, slope, (tokens, tokens))
    dbias = None
    if bias is not None:
        dbias = jnp.sum(slope, axis=tokens, dtype=jnp.float32).astype(bias.dtype)
    return dx.astype(x.dtype), dweight.astype(weight.dtype), dbias


linear.defvjp(_forward, _backward)
