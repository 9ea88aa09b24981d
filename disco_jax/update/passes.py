"""The passes through the model: micro-batches in, `[Q, N, T]` arrays out, and gradients back.

Nothing here knows the objective: the forward pass yields the figures of every response token, and
the backward pass takes the slopes of some scalar with respect to them.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from disco_jax.model import logprobs, transformer
from disco_jax.model import mesh as meshes
from disco_jax.model.dims import ModelDims
from disco_jax.model.lora import Adapted, Lora, attach, trained
from disco_jax.types import Array
from disco_jax.update.packing import MicroBatch


class Figures(NamedTuple):
    """Float32 [Q, N, T] statistics of every response token under one set of parameters."""

    logp_QNT: Array
    entropy_QNT: Array  # of the tempered policy, nats
    entropy_raw_QNT: Array  # at temperature 1, nats


class Passes:
    """Compiled forward and backward passes for one model, mesh and shape of minibatch.

    Nothing here needs arrays: the programs `_score(params, micro, figures=)` and
    `_pull_back(params, micro, slopes, total=)` lower from ShapeDtypeStructs on the devices of a
    mesh that is not at hand (parameters placed by `meshes.shardings`, micro-batches by
    `meshes.rows`, figures `meshes.replicated`); compile_check.py does so.
    """

    def __init__(
        self,
        dims: ModelDims,
        mesh: Mesh,
        *,
        shape: tuple[int, int, int],
        temperature: float,
        dtype: Any,
        remat: str,
        chunk: int,
        scan: bool = True,
        attention: str = "xla",
        lora: Lora | None = None,
    ):
        """
        Args:
          shape: (Q, N, T) of a minibatch.
          temperature: divides the logits.
          dtype, remat, scan, attention: see `transformer.hidden_states`.
          chunk: tokens per chunk of the output head, see `logprobs.token_stats`.
          lora: the size of the adapters, where parameters are `lora.Adapted`.

        Raises:
          ValueError: the mesh cannot split the vocabulary.
        """
        logprobs.check_vocabulary(dims.vocab, mesh)
        self.shape, self.mesh, self.dtype, self.lora = shape, mesh, dtype, lora
        self._forward = functools.partial(
            _forward,
            dims=dims,
            mesh=mesh,
            lora=lora,
            padding=math.prod(shape),
            temperature=temperature,
            chunk=chunk,
            compute={"dtype": dtype, "remat": remat, "scan": scan, "attention": attention},
        )
        everywhere = meshes.replicated(mesh)
        self._zeros = jax.jit(self.empty, out_shardings=everywhere)
        self._zeros_like = jax.jit(
            lambda params: meshes.constrain(mesh, jax.tree.map(jnp.zeros_like, trained(params)[0]))
        )
        self._score = jax.jit(self.score, donate_argnames="figures", out_shardings=everywhere)
        self._pull_back = jax.jit(
            functools.partial(_pull_back, self._forward, mesh), donate_argnames="total"
        )

    def empty(self) -> Figures:
        """Figures of nothing yet."""
        return Figures(*(jnp.zeros(self.shape, jnp.float32) for _ in Figures._fields))

    def score(self, params: Any, micro: MicroBatch, figures: Figures) -> Figures:
        """Writes the figures of a micro-batch's responses into their places (traceable)."""

        def place(x_QNT: Array, x_BL: Array) -> Array:
            flat = x_QNT.reshape(-1).at[micro.index_BL].set(x_BL, mode="drop")
            return flat.reshape(x_QNT.shape)

        return jax.tree.map(place, figures, Figures(*self._forward(params, micro)))

    def figures(self, params: Any, micros: Sequence[MicroBatch]) -> Figures:
        """The figures of a whole minibatch, micro-batch by micro-batch, no gradient kept."""
        figures = self._zeros()
        for micro in micros:
            figures = self._score(params, micro, figures=figures)
        return figures

    def pull_back(self, params: Any, micros: Sequence[MicroBatch], slopes: Figures) -> Any:
        """The gradient of a scalar whose slopes are given; with adapters, theirs only.

        Args:
          slopes: d scalar / d figures; None where the scalar does not depend on a figure.
        """
        total = self._zeros_like(params)
        for micro in micros:
            total = self._pull_back(params, micro, slopes, total=total)
        return total


def _forward(params, micro: MicroBatch, *, dims, mesh, lora, padding, temperature, chunk, compute):
    """`padding`: the value of `index_BL` where no figure is wanted."""
    if isinstance(params, Adapted):
        params = attach(lora, params)
    hidden_BLD = transformer.hidden_states(
        params, dims, micro.tokens_BL, micro.position_BL, micro.segment_BL, mesh=mesh, **compute
    )
    return logprobs.token_stats(
        hidden_BLD,
        transformer.head_weights(params, dims),
        micro.target_BL,
        temperature,
        chunk,
        wanted_BL=micro.index_BL < padding,
        mesh=mesh,
    )


def _pull_back(forward, mesh: Mesh, params, micro: MicroBatch, slopes: Figures, total: Any) -> Any:
    wanted = [i for i, slope_QNT in enumerate(slopes) if slope_QNT is not None]

    part, whole = trained(params)

    def outputs(part):
        stats = forward(whole(part), micro)
        return tuple(stats[i] for i in wanted)

    _, vjp = jax.vjp(outputs, part)
    cotangents = tuple(
        slopes[i].reshape(-1).at[micro.index_BL].get(mode="fill", fill_value=0) for i in wanted
    )
    (gradient,) = vjp(cotangents)
    return meshes.constrain(mesh, jax.tree.map(jnp.add, total, gradient))
