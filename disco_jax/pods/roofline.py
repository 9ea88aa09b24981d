"""How fast a program can be at best: the slowest of arithmetic, memory and links, at peak rates.

An upper bound of speed from data-sheet figures, not a prediction: no program reaches all peaks,
and what it overlaps is not known. Within a program the parts are taken to overlap fully.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from disco_jax.pods.chips import Chip
from disco_jax.pods.hlo import KINDS, Collective
from disco_jax.pods.work import Work


class Traffic(NamedTuple):
    """Bytes that a device sends in one call."""

    links: float  # to neighbours: ICI, NVLink
    network: float  # beyond them: between slices, or hosts of GPUs


class Seconds(NamedTuple):
    """Of one call, at peak rates."""

    arithmetic: float
    memory: float
    links: float
    network: float

    @property
    def least(self) -> float:
        return max(self)

    @property
    def bound(self) -> str:
        return self._fields[int(np.argmax(self))]


def traffic(collectives: Sequence[Collective], neighbours: int) -> Traffic:
    """What crosses links and network.

    Args:
      neighbours: devices joined by links, numbered one after another: a slice, or a GPU host.
    """
    links = network = 0.0
    for c in collectives:
        if not c.groups.differ(neighbours):
            links += c.wire_bytes
            continue
        # Hierarchical: among neighbours first, then between groups of them, which all share.
        inner = int(
            np.sum(c.groups.members[0] // neighbours == c.groups.members[0, 0] // neighbours)
        )
        outer = c.groups.size // inner
        turns = c.times * (2 if c.kind == "all-reduce" else 1)
        if c.kind == "collective-permute":
            network += c.wire_bytes
            continue
        links += c.bytes * (1 - 1 / inner) * turns
        network += c.bytes / inner * (1 - 1 / outer) * turns
    return Traffic(links, network)


def by_kind(collectives: Sequence[Collective]) -> dict[str, dict[str, float]]:
    """Per kind: places in the text, executions, payload and bytes sent by a device, in a call."""
    out = {}
    for kind in KINDS:
        these = [c for c in collectives if c.kind == kind]
        if these:
            out[kind] = {
                "places": len(these),
                "executions": sum(c.times for c in these),
                "payload_bytes": sum(c.bytes * c.times for c in these),
                "sent_bytes": sum(c.wire_bytes for c in these),
                "sent_bytes_in_reductions": sum(c.wire_bytes for c in these if c.adds_up),
            }
    return out


def seconds(work: Work, sent: Traffic, chip: Chip) -> Seconds:
    return Seconds(
        work.executed / chip.flops,
        work.traffic / chip.memory_rate,
        sent.links / chip.link_rate,
        sent.network / chip.network_rate,
    )
