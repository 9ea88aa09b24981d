"""Arithmetic and memory traffic of a run's programs, counted by hand.

The compiler's own count takes every loop body once, so it is no use for a scan over layers.
Figures are of one call and one device: the most it can be, every response at its limit.
"""

from typing import NamedTuple

from disco_jax.model.dims import ModelDims
from disco_jax.pods.known import layer_weights

HALF, FULL = 2, 4  # bytes of a bfloat16 and of a float32


class Work(NamedTuple):
    """Of one call on one device.

    Attributes:
      useful: FLOPs that the mathematics asks for (a backward pass is two forward ones).
      executed: with what is computed again.
      traffic: bytes to and from memory that cannot be saved by keeping things on the chip.
    """

    useful: float
    executed: float
    traffic: float


class Load(NamedTuple):
    """What a device has to do in one micro-batch.

    Attributes:
      tokens: of its rows.
      figures: response tokens among them, whose log-probabilities are wanted.
      context: tokens that a token attends to, on average.
      tensor: devices that share the work.
    """

    tokens: float
    figures: float
    context: float
    tensor: int


def forward_flops(dims: ModelDims, load: Load) -> tuple[float, float]:
    """FLOPs of the layers and of the output head."""
    attention = 4 * dims.heads * dims.head_dim * load.context
    layers = dims.layers * (2 * layer_weights(dims) + attention) * load.tokens
    head = 2 * dims.width * dims.vocab * load.figures
    return layers / load.tensor, head / load.tensor


def forward(dims: ModelDims, load: Load) -> Work:
    """Scoring a micro-batch."""
    layers, head = forward_flops(dims, load)
    return Work(layers + head, layers + head, _pass_traffic(dims, load))


def backward(dims: ModelDims, load: Load, remat: str, *, frozen: bool = False) -> Work:
    """Forward and backward passes of a micro-batch; the logits are computed twice in any case.

    Args:
      frozen: the matrices have no gradient, but adapters, whose own work is not counted.
    """
    layers, head = forward_flops(dims, load)
    again = {"none": 0, "dots": 0, "full": 1}[remat]
    useful = 3 * (layers + head)
    if frozen:
        matrices = 2 * dims.layers * layer_weights(dims) * load.tokens / load.tensor
        useful -= matrices + head
    return Work(useful, useful + again * layers + head, (3 + again) * _pass_traffic(dims, load))


def _pass_traffic(dims: ModelDims, load: Load) -> float:
    """Weights as gathered (written, read), activations and logits (each written, read)."""
    weights = dims.layers * layer_weights(dims) + dims.width * dims.vocab
    heads = (2 * dims.heads + 2 * dims.kv_heads) * dims.head_dim
    per_token = 6 * dims.width + (heads + 3 * dims.mlp) / load.tensor
    activations = dims.layers * per_token * load.tokens
    logits = dims.vocab / load.tensor * load.figures
    return 2 * (HALF * weights / load.tensor + HALF * activations + FULL * logits)


def adamw(parameters: float) -> Work:
    """Of that many parameters: weight, gradient and two moments read, all but one written."""
    return Work(12 * parameters, 12 * parameters, 7 * FULL * parameters)


def decode(dims: ModelDims, slots: float, context: float, steps: int, weights: float) -> Work:
    """Steps of decoding for a device's slots; all of its weights are read in every step."""
    layers, head = forward_flops(dims, Load(slots, slots, context, 1))
    cache = 2 * dims.layers * dims.kv_heads * dims.head_dim * HALF * context * slots
    return Work(steps * (layers + head), steps * (layers + head), steps * (weights + cache))


def prefill(dims: ModelDims, tokens: float, prompt: int, weights: float) -> Work:
    """Prompts through the layers, no output head; attention sees all of the square."""
    layers, _ = forward_flops(dims, Load(tokens, 0, prompt / 2, 1))
    all_of_it, _ = forward_flops(dims, Load(tokens, 0, prompt, 1))
    return Work(layers, all_of_it, weights)
