"""What training keeps between its programs, and where it lies."""

from typing import Any, NamedTuple

import jax
import optax
from jax.sharding import Mesh

from disco_jax.model import lora
from disco_jax.model import mesh as meshes


class TrainState(NamedTuple):
    """All that changes in training, and all that a checkpoint holds besides its step."""

    params: Any  # float32; with adapters, these alone
    opt_state: Any


class Placed(NamedTuple):
    """Shapes of what training keeps, with their places (ShapeDtypeStructs)."""

    base: Any  # of adapters, frozen; None without them
    state: TrainState


def place_shapes(
    params: Any,
    mesh: Mesh,
    optimizer: optax.GradientTransformation,
    *,
    dtype: Any,
    spec: lora.Lora | None = None,
    offload: bool = False,
) -> Placed:
    """What `Updater.init` makes of parameters, without making it.

    Args:
      params: arrays or shapes.
      dtype, spec, offload: as of the updater and its passes.
    """
    base = None
    if spec:
        base = _with_places(jax.eval_shape(lambda p: lora.freeze(p, dtype), params), mesh)
        params = jax.eval_shape(lambda b: lora.init(spec, b, jax.random.key(0)), base)
    params = _with_places(params, mesh)
    moments = jax.eval_shape(optimizer.init, params)
    return Placed(base, TrainState(params, _with_places(moments, mesh, on_host=offload)))


def _with_places(tree: Any, mesh: Mesh, *, on_host: bool = False) -> Any:
    places = meshes.shardings(mesh, tree, on_host=on_host)
    return jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree, places
    )
