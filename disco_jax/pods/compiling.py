"""Compiles a program for a target and takes its measure."""

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from disco_jax.pods import checks, roofline
from disco_jax.pods.checks import Context
from disco_jax.pods.hlo import Module
from disco_jax.pods.programs import Program
from disco_jax.pods.roofline import Seconds
from disco_jax.pods.topologies import Target

UNITS = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Memory(NamedTuple):
    """Bytes on one device while a program runs; `aliased` arguments become outputs in place."""

    arguments: float
    outputs: float
    aliased: float
    temporaries: float
    code: float
    beside: float  # other live arrays

    @property
    def total(self) -> float:
        return sum(self) - 2 * self.aliased


class Report(NamedTuple):
    """What is known of one program on one target.

    Attributes:
      program: its name; calls: in a step.
      memory: None where the compiler refused the program.
      needed: bytes on one device, in all; available: what there is.
      refused: the compiler's own words where it did.
      flops: useful, executed (both counted by hand), and the compiler's own count, which takes
        loop bodies once; of one call and device.
      collectives: see `roofline.by_kind`.
      seconds: of one call at peak rates.
      faults: check -> what was found.
      compile_seconds: on the machine that compiled.
    """

    program: str
    calls: int
    memory: Memory | None
    needed: float
    available: float
    refused: str
    flops: dict[str, float | None]
    collectives: dict[str, dict[str, float]]
    seconds: Seconds
    faults: dict[str, list[str]]
    compile_seconds: float

    @property
    def fits(self) -> bool:
        return not self.refused and self.needed <= self.available


@contextlib.contextmanager
def effort(level: float) -> Iterator[None]:
    """Compiles with less (-1) or full (0) effort: quicker, with more temporaries."""
    names = ("jax_exec_time_optimization_effort", "jax_memory_fitting_effort")
    before = {name: getattr(jax.config, name) for name in names}
    try:
        for name in names:
            jax.config.update(name, level)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def measure(program: Program, target: Target, context: Context, level: float = 0.0) -> Report:
    """Compiles; a program too large for the target is a report, not an error.

    Args:
      context: what the program is held against.
      level: compiler's effort, -1 to 0.

    Raises:
      jax.errors.JaxRuntimeError: the compiler failed for another reason.
    """
    begin = time.perf_counter()
    flops = {"useful": program.work.useful, "executed": program.work.executed, "compiler": None}
    try:
        with effort(level):
            compiled = program.lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        text = next(line for line in str(error).splitlines() if "RESOURCE_EXHAUSTED" in line)
        needed = _needed(str(error)) + program.beside
        nothing = roofline.seconds(program.work, roofline.Traffic(0, 0), target.chip)
        took = time.perf_counter() - begin
        return Report(
            program.name, program.calls, None, needed, target.chip.memory, text.strip(), flops, {},
            nothing, {}, took,
        )  # fmt: skip
    took = time.perf_counter() - begin
    module = Module(compiled.as_text(), program.trips)
    collectives = module.collectives()
    memory = _memory(compiled, program.beside)
    flops["compiler"] = (compiled.cost_analysis() or {}).get("flops")
    sent = roofline.traffic(collectives, target.devices_per_slice)
    context = context._replace(gradient=program.gradient)
    return Report(
        program.name, program.calls, memory, memory.total, target.chip.memory, "", flops,
        roofline.by_kind(collectives), roofline.seconds(program.work, sent, target.chip),
        checks.run(module, collectives, context), took,
    )  # fmt: skip


def _memory(compiled: Any, beside: float) -> Memory:
    stats = compiled.memory_analysis()
    return Memory(
        stats.argument_size_in_bytes,
        stats.output_size_in_bytes,
        stats.alias_size_in_bytes,
        stats.temp_size_in_bytes,
        stats.generated_code_size_in_bytes,
        beside,
    )


def _needed(text: str) -> float:
    """Bytes that a refused program needs; the compiler says so in one of two ways."""
    found = re.search(r"Used ([\d.]+)([BKMGT])? of", text) or re.search(
        r"\(([\d.]+)([BKMGT])?\) exceeds", text
    )
    return float(found[1]) * UNITS[found[2] or "B"] if found else float("nan")
