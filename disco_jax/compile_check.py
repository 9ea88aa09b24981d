"""Whether a run fits a machine that is not at hand, and what it could do there at best.

    python -m disco_jax.compile_check --config=configs/qwen7b.py --topology=v6e:16x16 \\
        --config.rollout.slots=1024

Compiles the run's rollout and update programs for TPUs (libtpu: the extra `aot`) or GPUs (jax's
CUDA plugin and ptxas) without any accelerator, and reports memory, arithmetic, the bytes of every
kind of collective, and a roofline of the step's time. No weights are read: the model needs only
its config.json, or to be one of the paper's three.

Exit codes: 0 everything fits and no check found a fault; 1 it does not, or one did; 2 the command
or the configuration is wrong, or a package is missing.
"""

import json
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from disco_jax import processes, samplers, settings, setup
from disco_jax.command import FAILED, OK, Command, Option, UserError, launch
from disco_jax.model import mesh as meshes
from disco_jax.model.dims import ModelDims, from_hf
from disco_jax.pods import advice, compiling, known, programs, table, topologies
from disco_jax.pods.checks import Context
from disco_jax.pods.chips import GIB
from disco_jax.pods.compiling import Report
from disco_jax.pods.programs import Program
from disco_jax.pods.topologies import Target
from disco_jax.rollout.engine import Engine
from disco_jax.update.step import Updater

OPTIONS = (
    Option("topology", "", "v5e:4x4, v5p:4x8x8, v6e:16x16, h200:8, h200:32x8"),
    Option("slices", 1, "Of that topology, joined by a network"),
    Option("effort", "-1", "The compiler's: -1 is quick and uses more memory, 0 is what runs use"),
    Option("programs", "", f"Only these, with commas: {','.join(programs.NAMES)}"),
    Option("out", "", "A file for the figures, as JSON"),
)


class Vocabulary(NamedTuple):
    """All that the sampler's programs need of a tokenizer: how many tokens end a response."""

    eos_ids: tuple[int, ...] = (0,)
    pad_id: int = 0


def find_dims(path: str) -> ModelDims:
    """The sizes of `config.model.path`: a folder with a config.json, or a model known by name.

    Raises:
      UserError: neither.
    """
    file = pathlib.Path(path).expanduser() / "config.json"
    if file.is_file():
        try:
            return from_hf(json.loads(file.read_text(encoding="utf-8")))
        except ValueError as error:
            raise UserError(f"config.model.path={path!r}: {error}") from error
    name = pathlib.Path(path).name
    if name not in known.MODELS:
        raise UserError(
            f"config.model.path={path!r}: no config.json there, and no model known by that name"
            f" ({', '.join(known.MODELS)})"
        )
    return known.MODELS[name]


def check(command: Command) -> int:
    """Compiles, prints the table, writes the JSON; returns the exit code."""
    config, options = command.config, command.options
    settings.check(config)
    try:
        level = float(options["effort"])
        if not -1 <= level <= 0:
            raise ValueError
    except ValueError:
        raise UserError(f"--effort={options['effort']}: a number from -1 to 0") from None
    dims = find_dims(config.model.path)
    try:
        target = topologies.find(options["topology"], options["slices"])
        mesh = meshes.make_mesh(tuple(config.mesh), target.devices)
    except (ValueError, topologies.Unavailable) as error:
        raise UserError(f"--{error}" if "topology" in str(error) else f"config.{error}") from error
    title = (
        f"{config.model.path}, {known.parameters(dims) / 1e9:.2f} B parameters, on {target.name}"
        f" ({len(target.devices)} devices; mesh {' x '.join(map(str, mesh.shape.values()))}),"
        f" compiled at effort {level:g}"
    )
    print(title, flush=True)
    updater, engine = _parts(config, dims, mesh, target)
    chosen = _settings(config, dims, updater, engine)
    reports: list[Report] = []
    for program, context in _programs(config, dims, updater, engine, options["programs"]):
        report = compiling.measure(program, target, context, level)
        reports.append(report)
        size = f"{report.needed / GIB:.2f} of {report.available / GIB:.2f} GiB"
        print(f"  {report.program}: {size}, {report.compile_seconds:.0f} s", flush=True)
        if options["out"]:  # after every program: a check of a large model takes a while
            record = {
                "model": config.model.path,
                "parameters": known.parameters(dims),
                "topology": target.name,
                "devices": len(target.devices),
                "mesh": dict(mesh.shape),
                "effort": level,
                "config": config.to_dict(),
                "fits": all(r.fits for r in reports),
                "step": table.summary(reports),
                "advice": advice.suggest(reports, chosen, dims),
                "programs": [table.as_json(r) for r in reports],
            }
            text = json.dumps(record, indent=1, default=str)
            pathlib.Path(options["out"]).write_text(text + "\n", encoding="utf-8")
    if not reports:
        raise UserError(f"--programs={options['programs']!r}: no program of that name; see --help")
    step = table.summary(reports)
    print(table.text(target.chip, reports, step, advice.suggest(reports, chosen, dims)))
    return OK if all(r.fits and not any(r.faults.values()) for r in reports) else FAILED


def _parts(config: Any, dims: ModelDims, mesh: Any, target: Target) -> tuple[Updater, Engine]:
    """The run's own objects, which compile the programs; the engine is that of one process."""
    model = setup.Model(pathlib.Path(config.model.path), Vocabulary(), dims)
    objective = setup.read_objective(config)
    if objective.needs_ref:
        raise UserError(
            f"config.objective compares with a reference policy, whose weights would be needed:"
            f" penalty={config.objective.penalty!r}; check the run with another one"
        )
    updater = setup.make_updater(config, model, objective, mesh)
    engine = samplers.make_engine(
        config, model, mesh, config.rollout, training=True,
        own=processes.own_mesh(mesh, target.host), free=int(target.chip.memory),
    )  # fmt: skip
    return updater, engine


def _settings(config: Any, dims: ModelDims, updater: Updater, engine: Engine) -> advice.Settings:
    sharing = updater.mesh.devices.size // engine.mesh.devices.size
    return advice.Settings(
        mesh=tuple(updater.mesh.shape.values()),
        rows=config.packing.rows,
        remat=config.model.remat,
        head_chunk=config.packing.head_chunk,
        slots=sharing * engine.config.slots,
        replicas=sharing * engine.replicas,
        weights=2 * known.parameters(dims),
        state=meshes.bytes_here(programs.trained(updater, dims)),
    )


def _programs(
    config: Any, dims: ModelDims, updater: Updater, engine: Engine, only: str
) -> Iterator[tuple[Program, Context]]:
    """The chosen programs, all if none is named, each with what it is held against."""
    sizes = programs.Sizes(
        config.questions,
        config.responses,
        config.minibatches,
        config.data.prompt_tokens,
        config.rollout.max_tokens,
        config.model.remat,
        config.packing.head_chunk,
    )
    length, tensor = updater.row_tokens, updater.mesh.shape["tensor"]
    update = Context(dims, config.packing.rows * length, length, tensor, gradient=False)
    rollout = Context(dims, 0, 0, tensor, gradient=False)
    copying = processes.Copying(engine, updater.mesh)
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    for context, half in (
        (update, programs.update_programs(updater, dims, sizes)),
        (rollout, programs.rollout_programs(engine, dims, sizes, updater, copying)),
    ):
        for program in half:
            if not wanted or program.name in wanted:
                yield program, context


def main() -> None:
    jax.config.update("jax_platforms", "cpu")  # nothing runs: an accelerator is left alone
    launch(check, options=OPTIONS, workdir=False)


if __name__ == "__main__":
    main()
