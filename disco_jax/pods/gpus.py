"""NVIDIA GPUs that are not there, as jax's CUDA plug-in compiles for them."""

import importlib.util
import os
import pathlib
from typing import Any

import jax
from jax.experimental import topologies

from disco_jax.pods.chips import Chip

PER_HOST = 8

# XLA's description of a Hopper GPU (its GpuTargetConfigProto): the properties that CUDA reports.
_HOPPER = """
platform_name: "CUDA"
device_description_str: "{name}"
runtime_version {{ major: 13 }}
dnn_version_info {{ major: 9 minor: 12 }}
gpu_device_info {{
  cuda_compute_capability {{ major: 9 }}
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  device_memory_size: {memory}
  memory_bandwidth: {memory_rate}
  l2_cache_size: 52428800
  shared_memory_per_core: 233472
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  threads_per_core_limit: 2048
  threads_per_block_limit: 1024
  threads_per_warp: 32
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
}}
"""


class Unavailable(RuntimeError):
    """A package or a tool is missing that compiling for a target needs."""


def devices(name: str, chip: Chip, hosts: int, each: int) -> list[Any]:
    """The devices of `hosts` hosts with `each` GPUs.

    Args:
      name: what the user asked for, for the error texts.

    Raises:
      Unavailable: no CUDA plug-in of jax, or no ptxas.
      ValueError: the plug-in does not take the description.
    """
    if importlib.util.find_spec("jax_cuda13_plugin") is None:
        raise Unavailable(f"topology={name!r} needs jax's CUDA plug-in: pip install -e '.[cuda]'")
    cuda = _toolkit()
    if cuda is None:
        raise Unavailable(f"topology={name!r} needs ptxas: CUDA_HOME must name a CUDA toolkit")
    _register(cuda)
    text = _HOPPER.format(
        name=chip.name, memory=int(chip.memory), memory_rate=int(chip.memory_rate)
    )
    try:
        description = topologies.get_topology_desc(
            platform="cuda", target_config=text, topology=f"1x{hosts}x{each}"
        )
    except Exception as error:  # jax raises its own runtime errors, and plain ones
        raise ValueError(f"topology={name!r}: {str(error).splitlines()[0]}") from error
    return list(description.devices)


def _toolkit() -> pathlib.Path | None:
    for folder in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
        if folder and (pathlib.Path(folder) / "bin" / "ptxas").exists():
            return pathlib.Path(folder)
    return None


def _register(cuda: pathlib.Path) -> None:
    """Has a jax that runs on CPU load the CUDA plug-in, which finds its tools by a flag."""
    flags = f"--xla_gpu_cuda_data_dir={cuda} --xla_gpu_autotune_level=0"  # no GPU to tune on
    if flags not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"  # libraries that only running needs
    jax.devices()  # loads the plug-ins that are installed
