"""The one table: our parameters <-> the tensors of a Hugging Face checkpoint.

Theirs are one per layer, [out, in]; ours stack the layers and are [in, out].
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, Sharding
from jax.sharding import PartitionSpec as P

from disco_jax.model import transformer
from disco_jax.model.dims import ModelDims

# (the tensor just done, bytes done, bytes in all)
OnTensor = Callable[[str, int, int], None]

# ours -> (theirs, transposed); `{i}` is the layer.
TOP = {
    "embed": ("model.embed_tokens.weight", False),
    "final_norm": ("model.norm.weight", False),
    "head": ("lm_head.weight", True),
}
LAYER = {
    "attn_norm": ("model.layers.{i}.input_layernorm.weight", False),
    "mlp_norm": ("model.layers.{i}.post_attention_layernorm.weight", False),
    "q_norm": ("model.layers.{i}.self_attn.q_norm.weight", False),
    "k_norm": ("model.layers.{i}.self_attn.k_norm.weight", False),
    "q": ("model.layers.{i}.self_attn.q_proj.weight", True),
    "k": ("model.layers.{i}.self_attn.k_proj.weight", True),
    "v": ("model.layers.{i}.self_attn.v_proj.weight", True),
    "o": ("model.layers.{i}.self_attn.o_proj.weight", True),
    "q_bias": ("model.layers.{i}.self_attn.q_proj.bias", False),
    "k_bias": ("model.layers.{i}.self_attn.k_proj.bias", False),
    "v_bias": ("model.layers.{i}.self_attn.v_proj.bias", False),
    "gate": ("model.layers.{i}.mlp.gate_proj.weight", True),
    "up": ("model.layers.{i}.mlp.up_proj.weight", True),
    "down": ("model.layers.{i}.mlp.down_proj.weight", True),
}


class Place(NamedTuple):
    """A tensor of a checkpoint, and where it belongs among our parameters."""

    name: str  # theirs
    shape: tuple[int, ...]  # theirs
    path: tuple[str, ...]  # ours: ("embed",) or ("layers", "q")
    layer: int | None  # its index in our leaf's first axis; None: it is the whole leaf
    transposed: bool

    def sharding(self, leaf: Sharding) -> Sharding:
        """How the tensor, in its own orientation, lies if our leaf lies as given."""
        if not isinstance(leaf, NamedSharding):
            return leaf
        stacked = self.layer is not None
        axes = list(leaf.spec)
        axes += [None] * (len(self.shape) + stacked - len(axes))
        axes = axes[stacked:]
        return NamedSharding(leaf.mesh, P(*(axes[::-1] if self.transposed else axes)))


def shapes(dims: ModelDims) -> transformer.Params:
    """The parameters' tree, a `jax.ShapeDtypeStruct` for every leaf."""
    return jax.eval_shape(lambda: transformer.init(jax.random.key(0), dims))


def places(dims: ModelDims) -> list[Place]:
    """Every tensor of a checkpoint; those of one leaf of ours are neighbours, layers in order."""
    tree = shapes(dims)
    layers = tree.pop("layers")
    found = []
    for key, leaf in tree.items():
        name, transposed = TOP[key]
        shape = leaf.shape[::-1] if transposed else leaf.shape
        found.append(Place(name, shape, (key,), None, transposed))
    for key, leaf in layers.items():
        name, transposed = LAYER[key]
        shape = leaf.shape[:0:-1] if transposed else leaf.shape[1:]
        found += [
            Place(name.format(i=i), shape, ("layers", key), i, transposed)
            for i in range(dims.layers)
        ]
    return found


def leaf_at(tree: Any, path: tuple[str, ...]) -> Any:
    """`tree["layers"]["q"]` for the path ("layers", "q")."""
    return functools.reduce(lambda node, key: node[key], path, tree)


def tally(on_tensor: OnTensor | None, sizes: Mapping[str, int]) -> Callable[[str], None]:
    """A function to call with the name of each tensor that is done; `sizes` are their bytes."""
    done, total = 0, sum(sizes.values())

    def count(name: str) -> None:
        nonlocal done
        done += sizes[name]
        if on_tensor is not None:
            on_tensor(name, done, total)

    return count
