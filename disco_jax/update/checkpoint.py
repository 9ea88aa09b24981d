"""Checkpoints: the one door to orbax, and the checks that orbax leaves to its user.

A checkpoint is the state of training and nothing else, plus a checksum of every array: orbax
restores a flipped byte, and a dtype other than the saved one, without a word. A step that cannot
be read back exactly is passed over for the one before it and, once that one has been read, set
aside (renamed, never deleted).
"""

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

Say = Callable[[str], None]
_SUMS = "checksums"
_STATE = "state"


class Checkpoints:
    """The checkpoints of one run, newest first."""

    def __init__(self, folder: str | os.PathLike, *, keep: int, say: Say):
        """
        Args:
          folder: made if need be; one sub-folder per step.
          keep: newest checkpoints to keep.
          say: told what was set aside, and why.
        """
        self.folder = pathlib.Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._say, self._keep = say, keep
        self._writing: int | None = None
        for path in self._steps():  # orbax cannot open a folder in which one step is empty
            if not (path / _STATE).is_dir() or not (path / _SUMS).is_dir():
                self._set_aside(path, "it is incomplete")
        _meet("checkpoints opened")
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(max_to_keep=self._keep, create=True),
            item_handlers={
                _STATE: ocp.StandardCheckpointHandler(),
                _SUMS: ocp.JsonCheckpointHandler(),
            },
        )

    def save(self, step: int, state: Any) -> None:
        """Starts writing; returns when the arrays are copied off the devices.

        Raises:
          OSError: the disk is full or cannot be written. Older checkpoints stay as they are.
        """
        self._writing = step
        sums = jax.device_get(_checksums(state))
        arguments = {
            _STATE: ocp.args.StandardSave(state),
            _SUMS: ocp.args.JsonSave({"step": step, "sums": _named(sums)}),
        }
        try:
            saved = self._manager.save(step, args=ocp.args.Composite(**arguments), force=True)
        except ValueError as error:
            raise self._failure(error) from error
        if not saved:
            raise OSError(f"{self.folder / str(step)}: orbax declined to save this step")

    def wait(self) -> None:
        """Returns once everything saved so far is committed; raises OSError where it can't be."""
        try:
            self._manager.wait_until_finished()
        except ValueError as error:
            raise self._failure(error) from error

    def restore(self, target: Any) -> tuple[int, Any] | None:
        """The newest checkpoint that reads back exactly, as (step, state).

        Args:
          target: a state of the same shapes; says where every array goes (another mesh than the
            saved one is fine).

        Returns None where there is no checkpoint.

        Raises:
          ValueError: there are checkpoints (or were, and have been set aside), and none of them
            can be read. Nothing is renamed then: the fault may lie elsewhere, say in the memory.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        steps = sorted(self._manager.all_steps(), reverse=True)
        unread: dict[int, str] = {}
        for step in steps:
            arguments = {
                _STATE: ocp.args.StandardRestore(abstract),
                _SUMS: ocp.args.JsonRestore(),
            }
            try:
                found = self._manager.restore(step, args=ocp.args.Composite(**arguments))
                reason = _difference(found[_SUMS]["sums"], found[_STATE])
            except Exception as error:  # orbax and tensorstore raise whatever they meet
                reason = f"it cannot be read ({_first_sentence(error)})"
            if reason is None:
                if unread:
                    self._manager.close()
                    for damaged, why in unread.items():
                        self._set_aside(self.folder / str(damaged), why)
                    _meet("checkpoints set aside")
                    self._manager = self._open()
                return step, found[_STATE]
            unread[step] = reason
            self._manager.close()  # after a failure it keeps unfinished reads
            self._manager = self._open()
        damaged = sorted(path.name for path in self.folder.glob("damaged-*"))
        if unread or damaged:
            shown = "; ".join(f"{step}: {why}" for step, why in unread.items())
            raise ValueError(
                f"{self.folder}: no checkpoint can be read ({shown or ', '.join(damaged)})."
                " To start anew, use another --workdir"
            )
        return None

    def close(self) -> None:
        """Waits for what is being written, and ends orbax's threads."""
        self.wait()
        self._manager.close()

    def _steps(self) -> list[pathlib.Path]:
        return [path for path in self.folder.iterdir() if path.name.isdigit()]

    def _set_aside(self, path: pathlib.Path, reason: str) -> None:
        if jax.process_index():
            return  # the first process does it, once
        target = path.with_name(f"damaged-{path.name}")
        shutil.rmtree(target, ignore_errors=True)
        path.rename(target)
        self._say(f"checkpoint {path.name} is not used: {reason}. Kept as {target}")

    def _failure(self, error: Exception) -> OSError:
        free = shutil.disk_usage(self.folder).free / 2**20
        return OSError(
            f"checkpoint {self._writing} could not be written to {self.folder}"
            f" ({free:.0f} MiB free): {_first_sentence(error)}. Older checkpoints"
            " are intact; free some space and run the same command"
        )


def _meet(name: str) -> None:
    """All processes wait here for one another."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def fingerprint(params: Any) -> str:
    """Sixteen hexadecimal digits that tell parameters from others, bit for bit, on any mesh."""
    sums = _named(jax.device_get(_checksums(params)))
    return hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()[:16]


def _first_sentence(error: Exception) -> str:
    """What orbax or tensorstore says first; the rest is a dump of their internals."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].split(". ")[0][:200]


@jax.jit
def _checksums(state: Any) -> Any:
    """Per leaf, the sum of its bits as 32-bit words: the same on every mesh."""

    def one(x: jax.Array) -> jax.Array:
        words = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
        return jnp.sum(jax.lax.bitcast_convert_type(x, words).astype(jnp.uint32))

    return jax.tree.map(one, state)


def _named(sums: Any) -> dict[str, int]:
    leaves = jax.tree_util.tree_leaves_with_path(sums)
    return {jax.tree_util.keystr(path): int(value) for path, value in leaves}


def _difference(saved: dict[str, int], state: Any) -> str | None:
    found = _named(jax.device_get(_checksums(state)))
    wrong = sorted(
        name for name in saved.keys() | found.keys() if saved.get(name) != found.get(name)
    )
    if not wrong:
        return None
    return f"the checksum of {json.dumps(wrong[0])} ({len(wrong)} of {len(found)} arrays) is wrong"
