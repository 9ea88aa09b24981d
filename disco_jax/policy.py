"""Which policy a command takes: a folder, an embedded one, or one that a run left behind."""

import functools
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from jax.sharding import Mesh

from disco_jax import setup, workdir
from disco_jax.command import Command, UserError
from disco_jax.folder import lock
from disco_jax.report.progress import Progress
from disco_jax.setup import Model
from disco_jax.update.checkpoint import Checkpoints

KINDS = ("final", "best", "latest")


class Policy(NamedTuple):
    """What is evaluated: `weights` tells it from others, `load` gives its parameters, placed."""

    name: str
    model: Model
    weights: str
    load: Callable[[], Any]


def find_policy(command: Command, mesh: Mesh, progress: Progress) -> Policy:
    """`--model`, or the policy of the workdir that `--checkpoint` names: one of `KINDS`, by
    default the final one, or the latest where the run is not finished: never was, or was made
    longer since.

    Raises:
      UserError: there is none, the final one is not that any more, or it does not fit the
        configuration.
    """
    config, path, wanted = command.config, command.workdir, command.options["checkpoint"]
    if command.options["model"]:
        return _folder_policy(config, command.options["model"], mesh)
    folders = {"final": path / workdir.POLICY, "best": path / workdir.BEST}
    steps = [int(p.name) for p in (path / workdir.CHECKPOINTS).glob("*") if p.name.isdigit()]
    latest, done = max(steps, default=0), workdir.finished_step(path)
    left_behind = folders["final"].is_dir() and latest > done  # by a run that was made longer
    if not wanted:
        wanted = "final" if folders["final"].is_dir() and not left_behind else "latest"
    if wanted == "final" and left_behind:
        raise UserError(
            f"--checkpoint=final: the run in {path} is not finished: its checkpoints reach step"
            f" {latest}, its summary step {done}. --checkpoint=latest is its newest policy,"
            f" --model={folders['final']} the one that it left before"
        )
    if wanted in folders:
        if not folders[wanted].is_dir():
            raise UserError(
                f"--workdir={path}: no {folders[wanted].name} there yet; --checkpoint=latest is"
                " what an unfinished run has"
            )
        return _folder_policy(config, str(folders[wanted]), mesh)
    if not steps:
        raise UserError(f"--workdir={path}: no trained policy there; name one with --model=FOLDER")
    model = setup.find_model(config)
    load = functools.partial(_checkpoint, command, model, mesh, latest, progress)
    return Policy(f"checkpoint-{latest}", model, f"checkpoint {latest}", load)


def _folder_policy(config: Any, path: str, mesh: Mesh) -> Policy:
    model = setup.find_model(config, path)
    load = functools.partial(setup.placed_weights, model, mesh)
    name = os.path.basename(os.path.abspath(model.folder))  # also where the path is `..`
    return Policy(name, model, _fingerprint(model.folder), load)


def _checkpoint(command: Command, model: Model, mesh: Mesh, step: int, progress: Progress) -> Any:
    """The parameters of the checkpoint of a step; its optimizer's moments are read and let go."""
    config, path = command.config, command.workdir
    updater = setup.make_updater(config, model, setup.read_objective(config), mesh)
    with lock(path, "a run is training there; wait, or evaluate --checkpoint=best"):
        checkpoints = Checkpoints(
            path / workdir.CHECKPOINTS, keep=config.checkpoint.keep, say=progress.say
        )
        try:
            found = checkpoints.restore(updater.init(setup.placed_weights(model, mesh)))
        except (OSError, ValueError) as error:
            raise UserError(str(error)) from error
        checkpoints.close()
    if found is None or found[0] != step:
        raise UserError(f"{path}: checkpoint {step} cannot be read and is set aside; run again")
    return updater.merged(found[1].params)


def _fingerprint(path: pathlib.Path) -> str:
    """Of a policy's weights: sizes and a block in every 16 MiB, enough to tell policies apart."""
    digest = hashlib.sha256()
    inside = sorted(p for p in path.rglob("*") if p.suffix in (".safetensors", ".gguf"))
    for file in inside or [path]:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as stream:
            for start in range(0, size, 2**24):
                stream.seek(start)
                digest.update(stream.read(2**16))
    return digest.hexdigest()[:16]
