"""Whether a run fits a machine that is not at hand, and what it could do there at best.

    python -m disco_jax.compile_check --config=configs/qwen7b.py --topology=v6e:16x16

Compiles the run's rollout and update programs for TPUs (libtpu: the extra `aot`) or GPUs (jax's
CUDA plugin and ptxas) without any accelerator, and reports memory, arithmetic, the bytes of every
kind of collective, and a roofline of the step's time. No weights are read: the model needs only
its config.json, or to be one of the paper's three.

Exit codes: 0 everything fits and no check found a fault; 1 it does not, or one did; 2 the command
or the configuration is wrong, or a package is missing.
"""

import json
import os
import pathlib
from typing import Any, NamedTuple

from disco_jax import settings, setup
from disco_jax.command import FAILED, OK, Command, Option, UserError, launch
from disco_jax.model import mesh as meshes
from disco_jax.model.dims import ModelDims, from_hf
from disco_jax.pods import advice, compiling, known, programs, table, topologies
from disco_jax.pods.checks import Context
from disco_jax.pods.compiling import Report
from disco_jax.pods.topologies import Target

OPTIONS = (
    Option("topology", "", "v5e:4x4, v5p:4x8x8, v6e:16x16, h200:8, h200:32x8"),
    Option("slices", 1, "Of that topology, joined by a network"),
    Option("effort", "-1", "The compiler's: -1 is quick and uses more memory, 0 is what runs use"),
    Option("programs", "", "Only these, with commas: score,pull back,optimizer,decode,..."),
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
    reports, chosen = _reports(config, dims, target, mesh, options["programs"], level)
    step = table.summary(reports, advice.ROLLOUT, target.chip)
    tips = advice.suggest(reports, chosen, dims)
    shape = ", ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    title = (
        f"{config.model.path or dims.family}, {known.parameters(dims) / 1e9:.2f} B parameters, on"
        f" {target.name} ({len(target.devices)} devices; {shape}), compiled at effort {level:g}"
    )
    print(table.text(title, target.chip, reports, step, tips))
    good = all(r.fits and not any(r.faults.values()) for r in reports)
    if options["out"]:
        record = {
            "model": config.model.path,
            "parameters": known.parameters(dims),
            "topology": target.name,
            "devices": len(target.devices),
            "mesh": dict(mesh.shape),
            "effort": level,
            "config": config.to_dict(),
            "fits": all(r.fits for r in reports),
            "good": good,
            "step": step,
            "advice": tips,
            "programs": [table.as_json(r) for r in reports],
        }
        pathlib.Path(options["out"]).write_text(json.dumps(record, indent=1, default=str) + "\n")
    return OK if good else FAILED


def _reports(
    config: Any, dims: ModelDims, target: Target, mesh: Any, only: str, level: float
) -> tuple[list[Report], advice.Settings]:
    model = setup.Model(pathlib.Path(config.model.path), Vocabulary(), dims)
    objective = setup.read_objective(config)
    if objective.needs_ref:
        raise UserError(
            f"config.objective compares with a reference policy: {config.objective.penalty!r}"
            " needs its weights; check the run without"
        )
    updater = setup.make_updater(config, model, objective, mesh)
    engine = setup.make_engine(config, model, mesh, config.rollout)
    sizes = programs.Sizes(
        config.questions,
        config.responses,
        config.minibatches,
        config.data.prompt_tokens,
        config.rollout.max_tokens,
        config.model.remat,
        config.packing.head_chunk,
    )
    data, fsdp, tensor = mesh.shape.values()
    rows, length = config.packing.rows, config.packing.row_tokens
    state = programs.train_state(updater, dims)
    halves = (
        (programs.update_programs(updater, dims, sizes), rows * length),
        (programs.rollout_programs(engine, dims, sizes, state), 0),
    )
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    reports, seen = [], []
    for half, tokens in halves:
        context = Context(dims, tokens, length if tokens else 0, tensor, False)
        for program in half:
            seen.append(program.name)
            if not wanted or program.name in wanted:
                print(f"compiling {program.name} ...", flush=True)
                reports.append(compiling.measure(program, target, context, level))
    if not reports or wanted - set(seen):
        raise UserError(f"--programs={only!r}: there are {', '.join(seen)}")
    cache = 4 * dims.layers * dims.kv_heads * dims.head_dim * (length + 1)
    chosen = advice.Settings(
        (data, fsdp, tensor), rows, config.model.remat, config.packing.head_chunk,
        config.rollout.slots, 2 * known.parameters(dims), cache,
    )  # fmt: skip
    return reports, chosen


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # nothing runs: an accelerator is left alone
    launch(check, options=OPTIONS, workdir=False)


if __name__ == "__main__":
    main()
