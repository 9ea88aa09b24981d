"""The two-step gradient: exact for every objective, whatever the micro-batches split.

  1. figures of the whole minibatch, micro-batch by micro-batch, no gradient kept: logp_QNT
  2. the objective and its gradient with respect to logp_QNT, a small array
  3. for each micro-batch, the forward pass again and its vjp with that array's slice, summed

Adding up the gradients of micro-batch losses instead would be another objective: the hinge on the
KL and the soft maximum over negatives are not linear in the micro-batches.

Where one micro-batch always holds the whole minibatch, the three steps are one program and the
forward pass of step 1 is saved.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from disco_jax.model import logprobs, transformer
from disco_jax.model import mesh as meshes
from disco_jax.model.dims import ModelDims
from disco_jax.objective.objective import Objective, loss
from disco_jax.types import Array, Batch, Metrics
from disco_jax.update.packing import MicroBatch


class Figures(NamedTuple):
    """Float32 [Q, N, T] statistics of every response token under one set of parameters."""

    logp_QNT: Array
    entropy_QNT: Array  # of the tempered policy, nats
    entropy_raw_QNT: Array  # at temperature 1, nats


class Gradient:
    """Compiled programs for one model, objective, mesh and shape of minibatch."""

    def __init__(
        self,
        dims: ModelDims,
        objective: Objective,
        mesh: Mesh,
        *,
        shape: tuple[int, int, int],
        temperature: float,
        dtype: Any,
        remat: str,
        chunk: int,
        single: bool,
    ):
        """
        Args:
          shape: (Q, N, T) of a minibatch.
          temperature: divides the logits.
          dtype, remat: see `transformer.hidden_states`.
          chunk: tokens per chunk of the output head, see `logprobs.token_stats`.
          single: one micro-batch always holds a whole minibatch.
        """
        self.shape, self.single = shape, single
        forward = functools.partial(
            _forward, dims=dims, temperature=temperature, dtype=dtype, remat=remat, chunk=chunk
        )
        entropy = objective.needs_entropy
        everywhere = meshes.replicated(mesh)
        score = functools.partial(_score, forward)
        objective_gradient = functools.partial(_objective_gradient, objective)
        pull_back = functools.partial(_pull_back, forward, entropy)
        whole = functools.partial(_whole, forward, objective)
        self._zeros = jax.jit(
            lambda: Figures(*(jnp.zeros(shape, jnp.float32) for _ in range(3))),
            out_shardings=everywhere,
        )
        self._zeros_like = jax.jit(lambda tree: jax.tree.map(jnp.zeros_like, tree))
        self._score = jax.jit(score, donate_argnames="figures", out_shardings=everywhere)
        self._objective_gradient = jax.jit(objective_gradient, out_shardings=everywhere)
        self._pull_back = jax.jit(pull_back, donate_argnames="total")
        self._whole = jax.jit(whole)

    def figures(self, params, micros: Sequence[MicroBatch]) -> Figures:
        """Step 1; also how old and reference log-probabilities are made."""
        figures = self._zeros()
        for micro in micros:
            figures = self._score(params, micro, figures=figures)
        return figures

    def __call__(
        self, params, micros: Sequence[MicroBatch], batch: Batch, figures: Figures | None = None
    ) -> tuple[Any, Metrics]:
        """The gradient of the loss over the whole minibatch, and the objective's metrics.

        Args:
          params: float32.
          micros: the packed minibatch.
          batch: what the objective needs of it.
          figures: of these very parameters, where they are known (the first minibatch after
            pi_old was refreshed): saves step 1.
        """
        if self.single:
            (micro,) = micros
            return self._whole(params, micro, batch)
        if figures is None:
            figures = self.figures(params, micros)
        metrics, slopes = self._objective_gradient(figures, batch)
        total = self._zeros_like(params)
        for micro in micros:
            total = self._pull_back(params, micro, slopes, total=total)
        return total, metrics


def _forward(params, micro: MicroBatch, *, dims, temperature, dtype, remat, chunk):
    hidden_BLD = transformer.hidden_states(
        params,
        dims,
        micro.tokens_BL,
        micro.position_BL,
        micro.segment_BL,
        dtype=dtype,
        remat=remat,
    )
    head_DV = transformer.head_weights(params, dims)
    return logprobs.token_stats(hidden_BLD, head_DV, micro.target_BL, temperature, chunk)


def _score(forward, params, micro: MicroBatch, figures: Figures) -> Figures:
    def place(x_QNT: Array, x_BL: Array) -> Array:
        flat = x_QNT.reshape(-1).at[micro.index_BL].set(x_BL, mode="drop")
        return flat.reshape(x_QNT.shape)

    return jax.tree.map(place, figures, Figures(*forward(params, micro)))


def _objective_gradient(objective: Objective, figures: Figures, batch: Batch):
    """Step 2: metrics, and d loss / d (logp_QNT, entropy_QNT)."""

    def value(logp_QNT, entropy_QNT):
        return loss(objective, logp_QNT, batch, entropy_QNT)

    slope = jax.grad(value, argnums=(0, 1), has_aux=True)
    slopes, metrics = slope(figures.logp_QNT, figures.entropy_QNT)
    return metrics, slopes


def _pull_back(forward, entropy: bool, params, micro: MicroBatch, slopes, total):
    """Step 3 for one micro-batch; the entropy is left out where the objective has no such term."""

    def outputs(params):
        stats = forward(params, micro)
        return (stats.logp_BL, stats.entropy_BL) if entropy else (stats.logp_BL,)

    _, vjp = jax.vjp(outputs, params)
    cotangents = tuple(
        slope_QNT.reshape(-1).at[micro.index_BL].get(mode="fill", fill_value=0)
        for slope_QNT in slopes[: 1 + entropy]
    )
    (gradient,) = vjp(cotangents)
    return jax.tree.map(jnp.add, total, gradient)


def _whole(forward, objective: Objective, params, micro: MicroBatch, batch: Batch):
    """All three steps at once, for a minibatch that is one micro-batch."""
    zeros = jnp.zeros(batch.mask_QNT.shape, jnp.float32)

    def value(params):
        figures = _score(forward, params, micro, Figures(zeros, zeros, zeros))
        return loss(objective, figures.logp_QNT, batch, figures.entropy_QNT)

    return jax.grad(value, has_aux=True)(params)
