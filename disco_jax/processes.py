"""Several processes as one run, one per host, all started with the same command.

Each samples and grades its own share of the questions on its own devices; all then hold everybody's
answers, and compute the same programs over the mesh of all devices. Only arrays cross between them
(text as bytes of JSON). The first process decides and writes the records, the others follow. With
one process every function here is the identity, or nearly.
"""

import dataclasses
import json
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from disco_jax.command import Option, UserError
from disco_jax.data import order
from disco_jax.model import lora
from disco_jax.model import mesh as meshes
from disco_jax.report.progress import Progress
from disco_jax.rollout.engine import Engine

OPTION = Option(
    "distributed",
    "",
    "several processes: `auto` on TPU pods and under SLURM, else ADDRESS:PORT,COUNT,INDEX",
)


def start(distributed: str) -> None:
    """Joins the other processes; call it before jax meets its devices.

    Args:
      distributed: "" for a run of one process, "auto" where jax knows the cluster, else
        "ADDRESS:PORT,COUNT,INDEX": where the first process listens, how many there are, and which
        of them this one is.

    Raises:
      UserError: anything else, or a cluster that jax does not know.
    """
    if not distributed:
        return
    try:
        if distributed == "auto":
            jax.distributed.initialize()
            return
        address, count, index = distributed.split(",")
        if not (":" in address and 0 <= int(index) < int(count)):
            raise ValueError
    except ValueError as error:
        raise UserError(
            f"--distributed={distributed!r}: `auto` needs a TPU pod, SLURM or the like; elsewhere"
            " give ADDRESS:PORT,COUNT,INDEX, such as 10.0.0.1:1234,2,0 on the first of two hosts"
        ) from error
    jax.distributed.initialize(address, int(count), int(index))


def leader() -> bool:
    """Whether this process decides and writes."""
    return jax.process_index() == 0


def share(count: int) -> np.ndarray:
    """Which of `count` things are this process's to do; the shares of all, in order, are all."""
    return order.shard(np.arange(count), jax.process_index(), jax.process_count())


def gather_rows(rows: np.ndarray) -> np.ndarray:
    """The rows of all processes, in the order of the processes; their numbers may differ.

    Args:
      rows: of one dtype and, but for the first axis, one shape in all processes.
    """
    if jax.process_count() == 1:
        return rows
    counts = multihost_utils.process_allgather(np.int32(len(rows)))
    padding = [(0, int(counts.max()) - len(rows))] + [(0, 0)] * (rows.ndim - 1)
    parts = multihost_utils.process_allgather(np.pad(rows, padding))
    return np.concatenate([part[:n] for part, n in zip(parts, counts, strict=True)])


def gather_json(values: list) -> list:
    """The lists of all processes, joined; of values that JSON can hold."""
    if jax.process_count() == 1:
        return values
    text = "".join(json.dumps(value) + "\n" for value in values)
    everything = gather_rows(np.frombuffer(text.encode(), np.uint8))
    return [json.loads(line) for line in everything.tobytes().decode().split("\n")[:-1]]


def from_leader(value: int) -> int:
    """The first process's value, in all of them."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def rows_from_leader(values: np.ndarray) -> np.ndarray:
    """The first process's numbers, in all of them.

    Args:
      values: int32 [n]; in the other processes anything of that length.
    """
    if jax.process_count() == 1:
        return values
    return np.asarray(multihost_utils.broadcast_one_to_all(values.astype(np.int32)))


def anywhere(flag: bool) -> bool:
    """Whether the flag is up in any process."""
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.bool_(flag)).any())


def own_mesh(mesh: Mesh, devices: list | None = None) -> Mesh:
    """The mesh of one process's devices alone, for sampling; `mesh` itself where those are all.

    Its tensor axis is that of `mesh`, as far as the devices of one process allow.

    Args:
      devices: of a process; by default those of this one, on a CPU also those not in `mesh`.
    """
    if devices is None:
        cpu = mesh.devices.flat[0].platform == "cpu"
        found = jax.local_devices() if cpu else mesh.local_devices
        devices = sorted(found, key=lambda device: device.id)
    if len(devices) == mesh.devices.size:
        return mesh
    tensor = int(np.gcd(mesh.shape["tensor"], len(devices)))
    return meshes.make_mesh((1, len(devices) // tensor, tensor), devices)


class Copying:
    """Makes the sampler's copy of parameters, whole on every device of a run.

    Layer by layer, and each cast before it is gathered: nothing is ever whole on a device in
    float32. One program for all of it kept up to a second copy, of other layouts (seen for v6e).
    """

    def __init__(self, engine: Engine, mesh: Mesh):
        """
        Args:
          engine: the sampler.
          mesh: of the run, over whose devices the parameters lie.
        """
        dims, dtype = engine.dims, engine.config.dtype
        unstack, none = engine._programs.load.__wrapped__, dataclasses.replace(dims, layers=0)

        def layer(stacked: Any, i: jax.Array) -> Any:
            cut = lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False)  # noqa: E731
            return lora.freeze(jax.tree.map(cut, stacked), dtype)

        def rest(params: Any) -> Any:
            return unstack({**params, "layers": {}}, dims=none)

        whole = meshes.replicated(mesh)
        self._layers = dims.layers
        self.layer = jax.jit(layer, out_shardings=whole)
        self.rest = jax.jit(rest, out_shardings=whole)

    def __call__(self, params: Any) -> Any:
        """The copy, as `engine.load_params` makes it for one process."""
        copy = self.rest({name: x for name, x in params.items() if name != "layers"})
        layers = (self.layer(params["layers"], np.int32(i)) for i in range(self._layers))
        return {**copy, "layers": tuple(layers)}


def own_arrays(tree: Any, mesh: Mesh) -> Any:
    """Arrays that are whole on every device of a run, as arrays of this process's devices alone.

    Args:
      mesh: the process's own.
    """
    if mesh.devices.flat[0].platform == "cpu":
        return meshes.one_memory(tree, mesh)
    here = meshes.replicated(mesh)

    def one(x: jax.Array) -> jax.Array:
        parts = [shard.data for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(x.shape, here, parts)

    return tree if jax.process_count() == 1 else jax.tree.map(one, tree)


class StopSignal:
    """SIGTERM and SIGINT: the first lets the step finish and saves, the second ends at once."""

    def __init__(self) -> None:
        self._received = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: Any) -> None:
        if self._received:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._received = True

    def requested(self) -> bool:
        """Whether a signal has come, to any process; all of them ask at the same points."""
        return anywhere(self._received)


class Follower:
    """`workdir.Workdir` of the other processes: takes part in what all must do, writes nothing."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def overview(self) -> str:
        return ""

    def open(self, step: int, progress: Progress) -> None:
        self.progress = progress

    def evaluation(
        self, step: int, evaluate: Callable[..., Any], export: Callable[..., Any]
    ) -> None:
        if from_leader(0):
            return
        evaluate(self.path, self.progress.say)
        if from_leader(0):
            export(self.path)

    def step(self, step: int, row: dict[str, float], rollouts: Any) -> None:
        pass

    def sync(self) -> None:
        pass

    def finish(self) -> None:
        pass
