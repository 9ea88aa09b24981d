"""Names such as `v5e:4x4` or `h200:32x8`: the devices of a machine that is not there.

TPUs need the libtpu package, GPUs the CUDA plugin of jax and NVIDIA's ptxas; neither needs an
accelerator. Devices from here can be compiled for and nothing else.
"""

import importlib.util
import math
import os
import re
from typing import Any, NamedTuple

from jax.experimental import topologies

from disco_jax.pods import gpus
from disco_jax.pods.chips import CHIPS, Chip
from disco_jax.pods.gpus import Unavailable

_LIBTPU_NAMES = {"v5p": "v5"}
# 3D tori have two cores per chip, which the compiler presents as one device.
_LIBTPU_OPTIONS = {"v5p": {"chip_config_name": "megacore", "chips_per_host_bounds": (2, 2, 1)}}


class Target(NamedTuple):
    """What to compile for.

    Attributes:
      name: as the user wrote it, with the number of slices.
      chip: peak figures of one device.
      devices: slice by slice.
      slices: groups of devices joined by a network; within one, by faster links.
      host: the devices of a machine of one host alone, which has as many as each host of this
        one. A process samples on its own; a part of a larger machine cannot be compiled for.
    """

    name: str
    chip: Chip
    devices: list[Any]
    slices: int
    host: list[Any]

    @property
    def devices_per_slice(self) -> int:
        return len(self.devices) // self.slices


def find(name: str, slices: int = 1) -> Target:
    """The target of a name and a number of slices.

    Args:
      name: `v5e:4x4`, `v5p:4x8x8`, `v6e:16x16` (chips along each axis of the torus), or
        `h200:8`, `h100:32x8` (GPUs, or hosts x 8 GPUs).
      slices: of that shape each, over a data centre's network; TPUs only.

    Raises:
      ValueError: not such a name, or a shape that does not exist.
      Unavailable: what compiling for it needs is not installed.
    """
    match = re.fullmatch(r"(\w+):(\d+(?:x\d+)*)", name)
    if not match or match[1] not in CHIPS or slices < 1:
        raise ValueError(
            f"topology={name!r}, slices={slices}: a chip ({', '.join(CHIPS)}) and its shape, such"
            " as v5e:4x4, v5p:4x8x8, v6e:16x16, h200:8 or h200:32x8; at least one slice"
        )
    kind, shape = match[1], [int(n) for n in match[2].split("x")]
    if kind.startswith("h"):
        each = gpus.PER_HOST
        if slices != 1 or len(shape) > 2 or (len(shape) == 2 and shape[1] != each):
            raise ValueError(
                f"topology={name!r}, slices={slices}: GPUs are N or HOSTSx{each}, in one slice"
            )
        hosts = shape[0] if len(shape) == 2 else max(1, shape[0] // each)
        found = gpus.devices(name, CHIPS[kind], hosts, math.prod(shape) // hosts)
        alone = found if hosts == 1 else gpus.devices(name, CHIPS[kind], 1, each)
        return Target(name, CHIPS[kind], found, hosts, alone)
    label = f"{slices} x {name}" if slices > 1 else name
    devices = _tpus(name, kind, shape, slices)
    alone, bounds = devices, _of_first_host(devices)[: len(shape)]
    if math.prod(bounds) < len(devices):
        alone = _tpus(name, kind, bounds, 1)
    return Target(label, CHIPS[kind], devices, slices, alone)


def _of_first_host(devices: list[Any]) -> list[int]:
    """How many chips of its host there are along each axis of the torus."""
    coordinates = [d.coords for d in devices if d.process_index == 0]
    return [len(set(along)) for along in zip(*coordinates, strict=True)]


def _tpus(name: str, kind: str, shape: list[int], slices: int) -> list[Any]:
    if importlib.util.find_spec("libtpu") is None:
        raise Unavailable(f"topology={name!r} needs libtpu: pip install -e '.[aot]'")
    # libtpu asks the machine what it is, unless told not to; and locks it for one process.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-16")  # any name keeps it quiet
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    options: dict[str, Any] = dict(_LIBTPU_OPTIONS.get(kind, {}))
    if len(shape) == 3:
        options["wrap"] = tuple(n >= 4 for n in shape)
    spelled = f"{_LIBTPU_NAMES.get(kind, kind)}:{'x'.join(map(str, shape))}"
    try:
        description = topologies.get_topology_desc(
            platform="tpu", topology_name=spelled, num_slices=slices, **options
        )
    except Exception as error:  # jax raises its own runtime errors, and plain ones
        raise ValueError(f"topology={name!r}: {str(error).splitlines()[0]}") from error
    return list(description.devices)
