"""Where a half of a step does not fit, the remedy named is one that helps."""

import pytest

from disco_jax.pods import advice, known
from disco_jax.pods.chips import GIB
from disco_jax.pods.compiling import Report
from disco_jax.pods.roofline import Seconds

DIMS = known.MODELS["DeepSeek-R1-Distill-Llama-8B"]


def suggested(program, *, needed, weights=15, state=6, available=31, slots=128) -> str:
    report = Report(
        program, 1, None, needed * GIB, available * GIB, "", {}, {}, Seconds(0, 0, 0, 0), {}, 0.0
    )
    settings = advice.Settings(
        (1, 16, 1), 1, "full", 1024, slots, 16, weights * GIB, state * GIB
    )  # fmt: skip
    (text,) = advice.suggest([report], settings, DIMS)
    assert text.startswith(f"{program}: ")
    return text


@pytest.mark.parametrize(
    "program,sizes,part",
    [
        ("decode", {"needed": 36}, "slots=80"),  # 10 of 15 GiB of slots are left
        ("decode", {"needed": 36, "slots": 16}, "more devices, or --config.rollout.max_tokens"),
        ("load layer", {"needed": 32}, "--config.optimizer.offload=True"),  # no slots there yet
        ("load layer", {"needed": 32, "weights": 16}, "devices of more memory"),
        ("gradient", {"needed": 40}, "--config.packing.head_chunk=256"),
    ],
)
def test_the_remedy_helps(program, sizes, part):
    assert part in suggested(program, **sizes)
