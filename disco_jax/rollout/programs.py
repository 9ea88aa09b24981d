"""The engine's static settings, and its device programs, jitted over a mesh."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from disco_jax.model import mesh as meshes
from disco_jax.model.dims import ModelDims
from disco_jax.rollout import decode, sampling
from disco_jax.rollout.layers import logits, unstack
from disco_jax.rollout.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class EngineConfig:
    """Static settings of the engine's programs.

    Attributes:
      prompt_tokens: P, the longest prompt.
      max_tokens: T, the limit on response tokens, end-of-sequence token included.
      slots: S, the most responses decoded at once, over all devices.
      prefill_questions: prompts in one prefill call.
      steps_per_dispatch: R, decoding steps before the host looks at the slots again, at most.
      sampling: how tokens are drawn.
      eos_ids: a response ends with the first of these.
      pad_id: fills unused positions.
      dtype: of activations, matrices and the cache.
      least_slots: the batch shrinks down to this many slots as responses finish; `slots`: never.
      least_columns: the smallest width of the cache, and of a prefill; the widest there is: one
        width for all.
    """

    prompt_tokens: int
    max_tokens: int
    slots: int
    prefill_questions: int
    steps_per_dispatch: int
    sampling: Sampling
    eos_ids: tuple[int, ...]
    pad_id: int
    dtype: Any
    least_slots: int
    least_columns: int


class Programs:
    """One attribute per program; each is compiled once per shape it is called with.

    Over several replicas each works on its own slots (`shard_map`): no replica waits for another
    within a dispatch.
    """

    def __init__(self, dims: ModelDims, config: EngineConfig, mesh: Mesh):
        self._dims, self._config, self._mesh = dims, config, mesh
        self.replicas = mesh.shape["data"] * mesh.shape["fsdp"]
        everywhere, row = meshes.replicated(mesh), meshes.ROWS
        dtype = config.dtype
        known = {"dims": dims, "dtype": dtype}
        # What XLA:CPU does slowly with bfloat16: see `unstack` and `cache.empty`.
        slow_bf16 = mesh.devices.flat[0].platform == "cpu" and dtype == jnp.bfloat16
        self.load = jax.jit(
            functools.partial(unstack, own_head=slow_bf16 and dims.tied, **known),
            out_shardings=everywhere,
        )
        self.prefill = jax.jit(functools.partial(decode.prefill, **known), out_shardings=everywhere)
        self.first_tokens = jax.jit(self._first_tokens, out_shardings=everywhere)
        init = functools.partial(
            decode.init_state,
            replicas=self.replicas,
            fresh=config.steps_per_dispatch,
            fresh_dtype=jnp.float32 if slow_bf16 else dtype,
            **known,
        )
        self.init = self._jit(init, static=("slots", "past"))
        self.end = self._jit(decode.end, donate=(0,))
        insert = functools.partial(decode.insert, eos_ids=config.eos_ids)
        self.insert = self._jit(self._mapped(insert, (P(), row, row)), donate=(1,))
        run = functools.partial(
            decode.decode,
            sampling=config.sampling,
            eos_ids=config.eos_ids,
            longest=config.prompt_tokens + config.max_tokens,
            **known,
        )
        self.decode = self._jit(self._mapped(run, (P(), row, row, row)), donate=(1,))
        self.slide = self._jit(self._slide, static=("past",))
        self.slide_here = self._jit(self._slide, static=("past",), donate=(0,))
        self.compact = self._jit(self._compact, static=("past",))

    def _jit(self, function, static=(), donate=()):
        return jax.jit(
            function,
            static_argnames=static,
            donate_argnums=donate,
            out_shardings=meshes.rows(self._mesh),
        )

    def _mapped(self, function, in_specs):
        if self.replicas == 1:
            return function
        return jax.shard_map(
            function, mesh=self._mesh, in_specs=in_specs, out_specs=meshes.ROWS, check_vma=False
        )

    def _first_tokens(self, params, hidden_1D, key_N):
        logits_1V = logits(params, hidden_1D, self._dims)
        logits_NV = jnp.broadcast_to(logits_1V, (len(key_N), logits_1V.shape[1]))
        zero_N = jnp.zeros(len(key_N), jnp.int32)
        return sampling.sample(logits_NV, key_N, zero_N, self._config.sampling)

    def _slide(self, state, *, past):
        move = functools.partial(decode.slide, row_Y=None, past=past)
        return self._mapped(move, (meshes.ROWS,))(state)

    def _compact(self, state, row_Y, *, past):
        move = functools.partial(decode.slide, past=past)
        return self._mapped(move, (meshes.ROWS, meshes.ROWS))(state, row_Y)
