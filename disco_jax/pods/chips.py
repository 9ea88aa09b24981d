"""Peak figures of accelerators, per chip, from their vendors' data sheets.

A TPU chip with two cores (v4, v5p) is one device ("megacore"). `memory` is what the compiler lets
a program use, a little below the data sheet's capacity: the limit its RESOURCE_EXHAUSTED errors
name, for TPUs; the data sheet's figure for GPUs.
"""

from typing import NamedTuple

GIB = 2**30


class Chip(NamedTuple):
    """One device. Rates are peaks in one direction: what no program exceeds."""

    name: str
    flops: float  # FLOP/s, bfloat16, dense
    memory: float  # bytes
    memory_rate: float  # bytes/s
    link_rate: float  # bytes/s out of a chip to its neighbours: ICI, NVLink
    network_rate: float  # bytes/s out of a chip beyond them: DCN, InfiniBand


# Cloud TPU documentation ("System architecture" of each generation; half of the bidirectional ICI
# bandwidth), NVIDIA H100 and H200 data sheets (NVLink 900 GB/s both ways, 400 Gb/s network).
CHIPS = {
    "v5e": Chip("TPU v5e", 197e12, 15.75 * GIB, 819e9, 200e9, 3.125e9),
    "v5p": Chip("TPU v5p", 459e12, 95.74 * GIB, 2765e9, 600e9, 6.25e9),
    "v6e": Chip("TPU v6e", 918e12, 31.25 * GIB, 1640e9, 400e9, 12.5e9),
    "h100": Chip("NVIDIA H100 SXM", 989e12, 80e9, 3350e9, 450e9, 50e9),
    "h200": Chip("NVIDIA H200 SXM", 989e12, 141e9, 4800e9, 450e9, 50e9),
}
