"""Low-rank adapters (LoRA, Hu et al. 2022): W + (alpha / rank) A B, of which only A and B train.

A policy with adapters is `Adapted(base, adapters)`. `attach` puts the adapters beside the
matrices of the layers, where `transformer.Block` applies them; `merge` adds them into the
matrices, for sampling and export. B starts at 0: an untrained adapter changes nothing.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Params = dict[str, Any]

TARGETS = ("q", "k", "v", "o", "gate", "up", "down")  # the matrices of a layer


@dataclasses.dataclass(frozen=True)
class Lora:
    """Which matrices have adapters, and of what size.

    Attributes:
      rank: columns of A, rows of B.
      alpha: the adapters' product is scaled by alpha / rank.
      targets: names of `TARGETS`.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]

    def __post_init__(self) -> None:
        unknown = [name for name in self.targets if name not in TARGETS]
        if unknown or not self.targets:
            raise ValueError(
                f"model.lora_targets={self.targets!r}: must be some of {', '.join(TARGETS)}"
            )


class Adapted(NamedTuple):
    """The parameters of a policy with adapters."""

    base: Params  # frozen
    adapters: Params  # trained, float32: {"layers": {"q_lora_a": [n, D, r], ...}}


def init(lora: Lora, base: Params, key: Array) -> Params:
    """Adapters for the matrices of `base` (arrays or shapes): A random, B zero."""
    layers = {}
    for name, subkey in zip(lora.targets, jax.random.split(key, len(lora.targets)), strict=True):
        n, rows, columns = base["layers"][name].shape
        shape = (n, rows, lora.rank)
        layers[f"{name}_lora_a"] = jax.random.normal(subkey, shape) * rows**-0.5
        layers[f"{name}_lora_b"] = jnp.zeros((n, lora.rank, columns))
    return {"layers": layers}


def freeze(base: Params, dtype: Any) -> Params:
    """The base as training holds it: matrices in the dtype they are used in, norms float32."""

    def cast(path: tuple, x: Array) -> Array:
        return x if "norm" in jax.tree_util.keystr(path) else x.astype(dtype)

    return jax.tree_util.tree_map_with_path(cast, base)


def trained(params: Any) -> tuple[Any, Callable[[Any], Any]]:
    """What an update changes of some parameters, and how they look with it replaced."""
    if isinstance(params, Adapted):
        return params.adapters, lambda adapters: params._replace(adapters=adapters)
    return params, lambda params: params


def attach(lora: Lora, policy: Adapted) -> Params:
    """One tree for the decoder: the base, and beside its matrices A and (alpha / rank) B."""
    scale = lora.alpha / lora.rank
    adapters = {
        name: x * scale if name.endswith("_b") else x
        for name, x in policy.adapters["layers"].items()
    }
    return {**policy.base, "layers": {**policy.base["layers"], **adapters}}


def merge(lora: Lora, policy: Adapted) -> Params:
    """The parameters of a plain decoder that computes the same; merged matrices are float32."""
    layers = dict(policy.base["layers"])
    adapters = policy.adapters["layers"]
    for name in lora.targets:
        product = jnp.einsum("nir,nro->nio", adapters[f"{name}_lora_a"], adapters[f"{name}_lora_b"])
        layers[name] = layers[name].astype(jnp.float32) + product * (lora.alpha / lora.rank)
    return {**policy.base, "layers": layers}
