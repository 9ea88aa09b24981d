"""What to change in a configuration whose programs do not fit."""

from collections.abc import Sequence
from typing import NamedTuple

from disco_jax.model.dims import ModelDims
from disco_jax.pods.chips import GIB
from disco_jax.pods.compiling import Report
from disco_jax.pods.programs import COPYING, ROLLOUT


class Settings(NamedTuple):
    """The keys of a configuration that memory hangs on, and the mesh it got."""

    mesh: tuple[int, int, int]
    rows: int
    remat: str
    head_chunk: int
    slots: int  # over all processes
    replicas: int  # that share them
    weights: float  # bytes of the sampler's copy on one device
    state: float  # bytes of the trainer's parameters and moments on one device


def suggest(reports: Sequence[Report], settings: Settings, dims: ModelDims) -> list[str]:
    """One sentence for each half of a step that does not fit, cheapest remedy first."""
    tight = [r for r in reports if not r.fits]
    found = []
    update = [r for r in tight if r.program not in ROLLOUT]
    if update:
        worst = max(update, key=lambda r: r.needed)
        found.append(f"{worst.program}: {_update(settings, dims)} ({_by_how_much(worst)})")
    rollout = [r for r in tight if r.program in ROLLOUT]
    if rollout:
        worst = max(rollout, key=lambda r: r.needed)
        found.append(f"{worst.program}: {_rollout(worst, settings)} ({_by_how_much(worst)})")
    return found


def _by_how_much(report: Report) -> str:
    over = (report.needed - report.available) / GIB
    return f"{over:.1f} GiB too much of {report.available / GIB:.1f} GiB"


def _update(settings: Settings, dims: ModelDims) -> str:
    data, fsdp, tensor = settings.mesh
    if settings.remat != "full":
        return "--config.model.remat=full"
    if settings.rows > 1:
        return f"--config.packing.rows={settings.rows // 2}"
    if settings.head_chunk > 256:
        return "--config.packing.head_chunk=256"
    if data > 1:
        return f"--config.mesh='(1, {data * fsdp}, {tensor})': states sharded further"
    if dims.kv_heads % (2 * tensor) == 0 and fsdp % 2 == 0:
        return f"--config.mesh='({data}, {fsdp // 2}, {2 * tensor})'"
    return "more devices, or devices of more memory"


def _rollout(report: Report, settings: Settings) -> str:
    here = settings.slots // settings.replicas
    if settings.weights > report.available / 2:
        return (
            f"the sampler keeps a whole copy of the weights ({settings.weights / GIB:.1f} GiB) on"
            " every device: devices of more memory"
        )
    if report.program in COPYING:
        return (
            f"the training state ({settings.state / GIB:.1f} GiB) and the sampler's copy of the"
            f" weights ({settings.weights / GIB:.1f} GiB) do not fit together: more devices,"
            " --config.optimizer.offload=True, or adapters (--config.model.lora_rank)"
        )
    fixed = settings.weights + settings.state
    share = (report.available - fixed) / max(report.needed - fixed, 1)
    fewer = min(int(here * share), here - 1)
    if fewer >= 1:
        return f"--config.rollout.slots={fewer * settings.replicas}"
    return "more devices, or --config.rollout.max_tokens lower"
