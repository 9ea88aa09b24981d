"""Per-token log-probability and entropy without the logits of all tokens in memory.

Tokens go through the output head in chunks. Forward keeps four numbers per token; backward
recomputes a chunk's logits [tokens of the chunk, V], the largest array there is, and adds up the
gradients of hidden states and head by hand. The head is applied only where a figure is wanted (the
response tokens): those tokens are moved to the front of their row, and the loop over chunks ends
with the longest row.

Logits, the log-softmax and everything after are float32 whatever the dtype of the hidden states:
rounding logits to bfloat16 alone makes a KL of about 3e-4 between identical policies, above the
paper's delta of 1e-4.

Over a mesh the loop runs once per device, on its rows (data, fsdp) and its part of the vocabulary
(tensor): within it only sums and maxima of a chunk's tokens cross the tensor axis, and the head's
gradient is reduced once, after the loop, in float32.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

Array = jax.Array

_ROWS = ("data", "fsdp")


class TokenStats(NamedTuple):
    """Float32 [B, L] figures of the distribution that predicts each target token."""

    logp_BL: Array  # log softmax(logits / temperature)[target]
    entropy_BL: Array  # entropy of softmax(logits / temperature), nats
    entropy_raw_BL: Array  # entropy of softmax(logits), nats; a metric, without gradient


class _Program(NamedTuple):
    """What the compiled loops are specialised for."""

    temperature: float
    positions: int  # of every row, in one chunk
    mesh: Mesh | None

    def over_devices(self, function, in_specs: tuple, out_specs: tuple):
        if self.mesh is None:
            return function
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )

    def sum(self, x: Array) -> Array:
        """Over the parts of the vocabulary."""
        return x if self.mesh is None else jax.lax.psum(x, "tensor")

    def max(self, x: Array) -> Array:
        return x if self.mesh is None else jax.lax.pmax(x, "tensor")

    def first_token(self, vocab_here: int) -> Array | int:
        """The token id of this device's first column of the head."""
        return 0 if self.mesh is None else jax.lax.axis_index("tensor") * vocab_here


def token_stats(
    hidden_BLD: Array,
    head_DV: Array,
    target_BL: Array,
    temperature: float,
    chunk: int,
    *,
    wanted_BL: Array | None = None,
    mesh: Mesh | None = None,
) -> TokenStats:
    """Statistics of softmax(hidden @ head / temperature) at the target tokens.

    Args:
      hidden_BLD: hidden states after the last norm; the one at l predicts `target_BL[:, l]`.
      head_DV: the output head.
      target_BL: int32 token ids.
      temperature: divides the logits (never the log-probabilities).
      chunk: tokens per chunk and device.
      wanted_BL: bool; the figures elsewhere are 0. None: all are wanted.
      mesh: with axes data, fsdp, tensor, over which the rows B and the vocabulary V are split;
        None: one device.

    Raises:
      ValueError: the tensor axis does not divide the vocabulary.
    """
    if wanted_BL is None:
        wanted_BL = jnp.ones(target_BL.shape, bool)
    B, L = target_BL.shape
    if mesh is not None:
        check_vocabulary(head_DV.shape[1], mesh)
        B //= mesh.shape["data"] * mesh.shape["fsdp"]
    program = _Program(temperature, min(L, max(1, chunk // B)), mesh)
    return _stats(program, hidden_BLD, head_DV, target_BL, wanted_BL)


def check_vocabulary(vocab: int, mesh: Mesh) -> None:
    """Raises ValueError where the tensor axis does not divide the vocabulary."""
    tensor = mesh.shape["tensor"]
    if vocab % tensor:
        raise ValueError(
            f"mesh={tuple(mesh.shape.values())}: tensor={tensor} must divide the model's vocabulary"
            f" of {vocab} tokens, which is split over it"
        )


class _Chunks:
    """This device's rows, wanted tokens first, cut into chunks of some positions of every row."""

    def __init__(self, wanted_BL: Array, positions: int):
        B, L = wanted_BL.shape
        self.shape, self.positions = (B, L), positions
        self.padding = -L % positions
        self.order_BL = jnp.argsort(~wanted_BL, axis=1, stable=True)
        self.count = -(-jnp.max(jnp.sum(wanted_BL, axis=1, dtype=jnp.int32)) // positions)

    def gather(self, x: Array) -> Array:
        """[B, L, ...] -> [B, L padded, ...] in the order of the chunks."""
        order = self.order_BL.reshape(*self.shape, *(1,) * (x.ndim - 2))
        x = jnp.take_along_axis(x, order, axis=1)
        return jnp.pad(x, ((0, 0), (0, self.padding), *((0, 0),) * (x.ndim - 2)))

    def scatter(self, x: Array) -> Array:
        """The inverse of `gather`."""
        back_BL = jnp.argsort(self.order_BL, axis=1).reshape(*self.shape, *(1,) * (x.ndim - 2))
        return jnp.take_along_axis(x[:, : self.shape[1]], back_BL, axis=1)

    def read(self, x: Array, index: Array) -> Array:
        """Chunk `index` as [tokens, ...]."""
        part = jax.lax.dynamic_slice_in_dim(x, index * self.positions, self.positions, axis=1)
        return part.reshape(-1, *x.shape[2:])

    def write(self, x: Array, index: Array, part: Array) -> Array:
        part = part.reshape(self.shape[0], self.positions, *x.shape[2:]).astype(x.dtype)
        return jax.lax.dynamic_update_slice_in_dim(x, part, index * self.positions, axis=1)


def _dot(a: Array, b: Array, contract_a: int, contract_b: int) -> Array:
    axes = (((contract_a,), (contract_b,)), ((), ()))
    return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def _forward_here(program: _Program, hidden_BLD, head_DV, target_BL, wanted_BL):
    """The statistics, and the log-sum-exp, of the rows of one device."""
    chunks = _Chunks(wanted_BL, program.positions)
    hidden_BLD, target_BL = chunks.gather(hidden_BLD), chunks.gather(target_BL)
    first = program.first_token(head_DV.shape[1])

    def softmax_sums(logits_CV: Array, top_C: Array) -> tuple[Array, Array]:
        """sum exp(logits - top) and sum exp(logits - top) logits, of this part of V."""
        exp_CV = jnp.exp(logits_CV - top_C[:, None])
        return jnp.sum(exp_CV, axis=1), jnp.sum(exp_CV * logits_CV, axis=1)

    def body(index: Array, found: tuple) -> tuple:
        raw_CV = _dot(chunks.read(hidden_BLD, index), head_DV, 1, 0)
        logits_CV = raw_CV / program.temperature
        top_C = program.max(jnp.max(logits_CV, axis=1))
        top_raw_C = top_C * program.temperature
        column_C1 = chunks.read(target_BL, index)[:, None] - first
        chosen_C = jnp.take_along_axis(
            logits_CV, column_C1, axis=1, mode="fill", fill_value=0, wrap_negative_indices=False
        )[:, 0]
        chosen_C, total_C, mean_C, total_raw_C, mean_raw_C = program.sum(
            (chosen_C, *softmax_sums(logits_CV, top_C), *softmax_sums(raw_CV, top_raw_C))
        )
        lse_C = top_C + jnp.log(total_C)
        entropy_C = lse_C - mean_C / total_C
        entropy_raw_C = top_raw_C + jnp.log(total_raw_C) - mean_raw_C / total_raw_C
        figures = (chosen_C - lse_C, entropy_C, entropy_raw_C, lse_C)
        return tuple(chunks.write(x, index, y) for x, y in zip(found, figures, strict=True))

    zeros_BL = jnp.zeros(target_BL.shape, jnp.float32)
    found = jax.lax.fori_loop(0, chunks.count, body, (zeros_BL,) * 4)
    found = tuple(jnp.where(wanted_BL, chunks.scatter(x), 0.0) for x in found)
    return TokenStats(*found[:3]), found[3]


def _backward_here(
    program: _Program, hidden_BLD, head_DV, target_BL, wanted_BL, lse_BL, entropy_BL,
    slope_BL, slope_entropy_BL,
):  # fmt: skip
    """Slopes of hidden states (of the device's rows) and of the head (the device's share)."""
    chunks = _Chunks(wanted_BL, program.positions)
    per_token = (hidden_BLD, target_BL, lse_BL, entropy_BL, slope_BL, slope_entropy_BL)
    per_token = tuple(None if x is None else chunks.gather(x) for x in per_token)
    columns_V = jnp.arange(head_DV.shape[1]) + program.first_token(head_DV.shape[1])

    def body(index: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        hidden_CD, target_C, lse_C, entropy_C, slope_C, slope_entropy_C = (
            None if x is None else chunks.read(x, index) for x in per_token
        )
        logits_CV = _dot(hidden_CD, head_DV, 1, 0) / program.temperature
        log_p_CV = logits_CV - lse_C[:, None]
        # d logp / d logits = onehot - p;  d H / d logits = -p (log p + H)
        rate_CV = -slope_C[:, None]
        if slope_entropy_C is not None:
            rate_CV = rate_CV - slope_entropy_C[:, None] * (log_p_CV + entropy_C[:, None])
        chosen_CV = columns_V == target_C[:, None]
        slope_CV = jnp.exp(log_p_CV) * rate_CV + jnp.where(chosen_CV, slope_C[:, None], 0.0)
        slope_CV = (slope_CV / program.temperature).astype(hidden_CD.dtype)
        dhidden_CD = program.sum(_dot(slope_CV, head_DV, 1, 1))
        dhidden_BLD, dhead_DV = found
        return chunks.write(dhidden_BLD, index, dhidden_CD), dhead_DV + _dot(
            hidden_CD, slope_CV, 0, 0
        )

    start = (jnp.zeros_like(per_token[0]), jnp.zeros(head_DV.shape, jnp.float32))
    dhidden_BLD, dhead_DV = jax.lax.fori_loop(0, chunks.count, body, start)
    if program.mesh is not None:
        dhead_DV = jax.lax.psum(dhead_DV, "data")
        if _head_spec(program.mesh, dhead_DV.shape[0])[0]:
            dhead_DV = jax.lax.psum_scatter(dhead_DV, "fsdp", scatter_dimension=0, tiled=True)
        else:
            dhead_DV = jax.lax.psum(dhead_DV, "fsdp")
    return chunks.scatter(dhidden_BLD), dhead_DV


def _head_spec(mesh: Mesh, width: int) -> P:
    """Where the head's gradient lives: on the devices of its parameter."""
    return P("fsdp" if width % mesh.shape["fsdp"] == 0 else None, "tensor")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _stats(program: _Program, hidden_BLD, head_DV, target_BL, wanted_BL) -> TokenStats:
    return _run_forward(program, hidden_BLD, head_DV, target_BL, wanted_BL)[0]


def _run_forward(program: _Program, hidden_BLD, head_DV, target_BL, wanted_BL):
    rows, vocab = P(_ROWS), P(None, "tensor")
    run = program.over_devices(
        functools.partial(_forward_here, program), (rows, vocab, rows, rows), (rows, rows)
    )
    return run(hidden_BLD, head_DV.astype(hidden_BLD.dtype), target_BL, wanted_BL)


def _stats_forward(program: _Program, hidden_BLD, head_DV, target_BL, wanted_BL):
    arrays = tuple(x.value for x in (hidden_BLD, head_DV, target_BL, wanted_BL))
    stats, lse_BL = _run_forward(program, *arrays)
    return stats, (*arrays, lse_BL, stats.entropy_BL)


def _stats_backward(program: _Program, saved: tuple, slopes: TokenStats):
    hidden_BLD, head_DV, *tokens = saved
    slope_BL, slope_entropy_BL = (
        None if isinstance(x, SymbolicZero) else x for x in (slopes.logp_BL, slopes.entropy_BL)
    )
    if slope_BL is None:
        slope_BL = jnp.zeros_like(tokens[2])
    rows, vocab = P(_ROWS), P(None, "tensor")
    head_spec = P() if program.mesh is None else _head_spec(program.mesh, head_DV.shape[0])
    run = program.over_devices(
        functools.partial(_backward_here, program),
        (rows, vocab, *(rows,) * 6),
        (rows, head_spec),
    )
    dhidden_BLD, dhead_DV = run(
        hidden_BLD, head_DV.astype(hidden_BLD.dtype), *tokens, slope_BL, slope_entropy_BL
    )
    return dhidden_BLD, dhead_DV.astype(head_DV.dtype), None, None


_stats.defvjp(_stats_forward, _stats_backward, symbolic_zeros=True)
