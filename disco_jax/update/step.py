"""Lines 7 to 11 of Algorithm 1: pi_old's log-probabilities, then one update per minibatch."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from disco_jax.model import lora
from disco_jax.model import mesh as meshes
from disco_jax.types import Array, Batch, Mean, Metrics, Rollouts
from disco_jax.update import packing
from disco_jax.update.gradient import Gradient
from disco_jax.update.packing import MicroBatch
from disco_jax.update.passes import Figures
from disco_jax.update.state import Placed, TrainState, place_shapes


class Minibatch(NamedTuple):
    """A share of a step's questions, packed, with pi_old's figures."""

    micros: list[MicroBatch]
    batch: Batch
    old: Figures
    logp_sampler_QNT: Array
    waste: Mean  # padding among the tokens of the micro-batches


class Updater:
    """Turns the rollouts of a step into updates of the state."""

    def __init__(
        self,
        gradient: Gradient,
        optimizer: optax.GradientTransformation,
        *,
        row_tokens: int,
        rows: int,
        ref_params: Any | None = None,
        offload: bool = False,
    ):
        """
        Args:
          gradient: its passes fix the mesh and the minibatch's shape (Q, N, T).
          row_tokens, rows: L and B of a micro-batch.
          ref_params: the frozen reference, where the objective needs one; with adapters, their
            base is it.
          offload: the optimizer's moments wait in host memory between updates.

        Raises:
          ValueError: rows do not divide over the devices, or the devices have no host memory to
            offload to.
        """
        self.passes = gradient.passes
        self.mesh = mesh = self.passes.mesh
        shards = mesh.shape["data"] * mesh.shape["fsdp"]
        if rows % shards:
            raise ValueError(
                f"packing.rows={rows} must be a multiple of data x fsdp = {shards} devices"
            )
        if offload:
            meshes.check_host_memory(mesh)
        self.gradient, self.optimizer, self.offload = gradient, optimizer, offload
        self.row_tokens, self.rows, self.ref_params = row_tokens, rows, ref_params
        self._rows, self._everywhere = meshes.rows(mesh), meshes.replicated(mesh)
        self._apply = jax.jit(self._apply_gradient, donate_argnums=0)
        self.base = None  # of adapters; `init` sets it
        self._merge = jax.jit(self._merge_adapters)

    def init(self, params: Any) -> TrainState:
        """The state before the first step; parameters and moments placed by the mesh's table.

        Takes `params` over: where they lie in place already they are not copied, and the first
        update, which donates its state, deletes them. With adapters, they become the frozen base.
        """
        if spec := self.passes.lora:
            self.base = self._place(
                jax.jit(lora.freeze, static_argnums=1)(params, self.passes.dtype)
            )
            if self.gradient.objective.needs_ref:
                self.ref_params = self.base
            params = lora.init(spec, self.base, jax.random.key(0))
        params = self._place(params)
        moments = jax.eval_shape(self.optimizer.init, params)
        placed = jax.jit(self.optimizer.init, out_shardings=meshes.shardings(self.mesh, moments))
        return TrainState(params, self._put_away(placed(params)))

    def shapes(self, params: Any) -> Placed:
        """What `init` makes of parameters, which may be shapes, without making it."""
        passes = self.passes
        return place_shapes(
            params, self.mesh, self.optimizer, dtype=passes.dtype, spec=passes.lora,
            offload=self.offload,
        )  # fmt: skip

    def merged(self, params: Any) -> Any:
        """A state's parameters as those of a plain decoder, for sampling and export."""
        return self._merge(self.base, params) if self.passes.lora else params

    def _merge_adapters(self, base: Any, adapters: Any) -> Any:
        params = lora.merge(self.passes.lora, lora.Adapted(base, adapters))
        return meshes.constrain(self.mesh, params)

    def _policy(self, params: Any) -> Any:
        """A state's parameters as the passes take them."""
        return lora.Adapted(self.base, params) if self.passes.lora else params

    def _place(self, params: Any) -> Any:
        return jax.device_put(params, meshes.shardings(self.mesh, params))

    def _put_away(self, opt_state: Any) -> Any:
        """Moves the moments to where they wait between updates."""
        if not self.offload:
            return opt_state
        return jax.device_put(opt_state, meshes.shardings(self.mesh, opt_state, on_host=True))

    def _fetch(self, opt_state: Any) -> Any:
        """The inverse of `_put_away`; the activations of the passes are gone by then."""
        if not self.offload:
            return opt_state
        return jax.device_put(opt_state, meshes.shardings(self.mesh, opt_state))

    def minibatches(
        self, params: Any, rollouts: Rollouts, reward_QN: np.ndarray, on_policy: bool = True
    ) -> Iterator[Minibatch]:
        """Splits a step's rollouts and scores them all under pi_old.

        Args:
          on_policy: `params` sampled the rollouts, and are pi_old. Otherwise pi_old is whatever
            sampled them, and its log-probabilities are the sampler's, `rollouts.logp_QNT`.

        Raises:
          ValueError: the number of questions is not a multiple of the minibatch's.
        """
        size = self.passes.shape[0]
        questions = len(rollouts.prompt_length_Q)
        if questions % size:
            raise ValueError(f"{questions} questions do not divide into minibatches of {size}")
        for start in range(0, questions, size):
            part = Rollouts(*(x[start : start + size] for x in rollouts))
            micros = packing.pack(part, self.row_tokens, self.rows)
            waste = packing.waste(micros)
            micros = jax.device_put(micros, self._rows)
            old = self.passes.figures(self._policy(params), micros)
            ref = None
            if self.ref_params is not None:
                ref = self.passes.figures(self.ref_params, micros).logp_QNT
            mask_QNT = np.arange(self.passes.shape[2]) < part.length_QN[..., None]
            reward = reward_QN[start : start + size].astype(np.float32)
            mask_QNT, reward, logp_sampler_QNT = jax.device_put(
                (mask_QNT, reward, part.logp_QNT), self._everywhere
            )
            batch = Batch(mask_QNT, reward, old.logp_QNT if on_policy else logp_sampler_QNT, ref)
            yield Minibatch(micros, batch, old, logp_sampler_QNT, waste)

    def update(
        self, state: TrainState, minibatch: Minibatch, known: Figures | None = None
    ) -> tuple[TrainState, Metrics]:
        """One AdamW update. Donates `state`.

        Args:
          known: the minibatch's figures under `state.params`, where they are known already.
        """
        gradient, metrics = self.gradient(
            self._policy(state.params), minibatch.micros, minibatch.batch, known
        )
        state = state._replace(opt_state=self._fetch(state.opt_state))
        state, optimizer_metrics = self._apply(state, gradient)
        state = state._replace(opt_state=self._put_away(state.opt_state))
        return state, {**metrics, **optimizer_metrics}

    def step(
        self,
        state: TrainState,
        rollouts: Rollouts,
        reward_QN: np.ndarray,
        on_policy: bool = True,
    ) -> tuple[TrainState, Metrics]:
        """One step of Algorithm 1 after sampling: every minibatch once. Donates `state`.

        Returns the new state and the metrics merged over the minibatches, still on the device.
        The KL figures are of the minibatches after the first, each before its own update; and of
        the first, too, where other parameters sampled the rollouts (see `minibatches`).
        """
        minibatches = list(self.minibatches(state.params, rollouts, reward_QN, on_policy))
        total: Metrics = {}
        for i, minibatch in enumerate(minibatches):
            state, metrics = self.update(state, minibatch, minibatch.old if i == 0 else None)
            # Where theta is still pi_old, the KL is 0 by construction.
            if on_policy and i == 0 < len(minibatches) - 1:
                metrics = {k: v for k, v in metrics.items() if not k.startswith("kl/")}
            metrics |= _old_metrics(
                minibatch.old, minibatch.batch.mask_QNT, minibatch.logp_sampler_QNT, on_policy
            )
            metrics["packing/waste"] = minibatch.waste
            total = {
                name: total[name].merge(mean) if name in total else mean
                for name, mean in metrics.items()
            }
        return state, total

    def _apply_gradient(self, state: TrainState, gradient: Any):
        """AdamW, skipped (state unchanged) where the gradient is not finite."""
        norm = optax.tree.norm(gradient)
        finite = jnp.isfinite(norm)
        updates, opt_state = self.optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        params, opt_state = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old),
            (params, opt_state),
            (state.params, state.opt_state),
        )
        params, opt_state = meshes.constrain(self.mesh, (params, opt_state))
        one = jnp.ones(())
        metrics = {
            "optim/grad_norm": Mean(jnp.where(finite, norm, 0.0), finite.astype(jnp.float32)),
            "optim/skipped": Mean(1 - finite.astype(jnp.float32), one),
        }
        return TrainState(params, opt_state), metrics


@functools.partial(jax.jit, static_argnames="on_policy")
def _old_metrics(
    old: Figures, mask_QNT: Array, logp_sampler_QNT: Array, on_policy: bool
) -> Metrics:
    """Of the step's first parameters, over response tokens: their entropy, and the gap between
    the sampler's log-probabilities and theirs.

    `kl/floor` is the k1 estimate of KL(sampler || trainer) for the same weights. What it is above
    0, numerics alone account for; a delta near it cannot be held. `kl/floor_abs` and `_ratio` are
    the means of |d| and e^|d|, d the gap of a token, and `kl/floor_max` the largest |d| of a
    minibatch (of a step: their mean). Where other weights sampled, the
    same estimate is `kl/sampler`: how far the policy is from the one that sampled.
    """
    count = jnp.sum(mask_QNT, dtype=jnp.float32)

    def mean(x_QNT: Array) -> Mean:
        return Mean(jnp.sum(jnp.where(mask_QNT, x_QNT, 0.0)), count)

    gap_QNT = logp_sampler_QNT - old.logp_QNT
    metrics = {"entropy/mean": mean(old.entropy_QNT), "entropy/at_1": mean(old.entropy_raw_QNT)}
    if on_policy:
        size_QNT = jnp.where(mask_QNT, jnp.abs(gap_QNT), 0.0)
        return metrics | {
            "kl/floor": mean(gap_QNT),
            "kl/floor_abs": mean(size_QNT),
            "kl/floor_ratio": mean(jnp.exp(size_QNT)),
            "kl/floor_max": Mean(jnp.max(size_QNT), jnp.ones(())),
        }
    return metrics | {"kl/sampler": mean(gap_QNT)}
