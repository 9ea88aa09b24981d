"""What a compiled program must not do, read from its text.

Each check returns the faults it found, in words; none is good.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from disco_jax.model.dims import ModelDims
from disco_jax.pods.hlo import Collective, Module, Shape
from disco_jax.pods.known import layer_weights

SMALL = 1 << 20  # bytes; reductions of less are counters, norms and biases


class Context(NamedTuple):
    """What a program is held against.

    Attributes:
      dims: of the model.
      tokens: of a device's rows in a micro-batch; row_tokens: L, of one row.
      tensor: devices of the mesh's last axis.
      gradient: the program's reductions over rows add up gradients.
    """

    dims: ModelDims
    tokens: int
    row_tokens: int
    tensor: int
    gradient: bool


def _reductions_in_float32(module: Module, found: Sequence[Collective], c: Context) -> list[str]:
    """Gradients add up over rows (data, fsdp) in float32; over tensor, activations may not be."""
    if not c.gradient:
        return []
    return [
        f"{x.kind} of {shape} over rows, {x.times} times ({x.source})"
        for x in found
        if x.adds_up and x.groups.differ(c.tensor)
        for shape in x.payload
        if shape.bytes > SMALL and shape.dtype in ("bf16", "f16")
    ]


def _gathers_within_a_layer(module: Module, found: Sequence[Collective], c: Context) -> list[str]:
    """In the loop over layers, no gather of more than a layer's float32 weights."""
    limit = 4 * max(layer_weights(c.dims), c.dims.width)
    return [
        f"all-gather of {', '.join(map(str, x.payload))} in a loop of {x.loops} ({x.source})"
        for x in found
        if x.kind == "all-gather" and x.loops and x.bytes > limit
    ]


def _no_exchange_of_activations(
    module: Module, found: Sequence[Collective], c: Context
) -> list[str]:
    """All-to-all only once, of no more than a micro-batch's hidden states in float32."""
    limit = 4 * max(c.tokens, 1) * c.dims.width
    return [
        f"all-to-all of {', '.join(map(str, x.payload))}, {x.times} times ({x.source})"
        for x in found
        if x.kind == "all-to-all" and (x.bytes > limit or (x.times > 1 and x.bytes > SMALL))
    ]


def _no_logits(module: Module, found: Sequence[Collective], c: Context) -> list[str]:
    """No array of [tokens, vocabulary] for half of a device's tokens in a micro-batch, or more."""
    vocabularies = {c.dims.vocab, c.dims.vocab // c.tensor}

    def fault(shape: Shape) -> bool:
        here = [size for size in shape.sizes if size in vocabularies]
        rest = math.prod(shape.sizes) // here[0] if here else 0
        return rest >= c.tokens / 2

    return _arrays(module, fault) if c.tokens else []


def _no_square(module: Module, found: Sequence[Collective], c: Context) -> list[str]:
    """No array with two axes of a row's length: attention in blocks."""
    L = c.row_tokens
    return _arrays(module, lambda shape: shape.sizes.count(L) > 1) if L else []


def _arrays(module: Module, fault: Callable[[Shape], bool]) -> list[str]:
    found = {
        str(shape): instruction.name
        for _, instruction, _ in module.walk()
        for shape in instruction.shapes
        if fault(shape)
    }
    return [f"an array {shape} (%{name})" for shape, name in list(found.items())[:5]]


CHECKS: dict[str, Callable[[Module, Sequence[Collective], Context], list[str]]] = {
    "gradients are reduced in float32": _reductions_in_float32,
    "no gather above one layer within a loop": _gathers_within_a_layer,
    "no all-to-all of activations in a loop": _no_exchange_of_activations,
    "no [tokens, vocabulary] array": _no_logits,
    "no [L, L] array": _no_square,
}


def run(module: Module, collectives: Sequence[Collective], context: Context) -> dict[str, list]:
    """Check -> faults."""
    return {name: check(module, collectives, context) for name, check in CHECKS.items()}
