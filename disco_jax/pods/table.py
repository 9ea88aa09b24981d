"""The outcome of a check on the screen, and as JSON."""

from collections.abc import Sequence
from typing import Any

from disco_jax.pods.chips import GIB, Chip
from disco_jax.pods.compiling import Report
from disco_jax.pods.programs import ROLLOUT

COLUMNS = (
    "program", "calls", "arguments", "temporary", "output", "beside", "total", "of", "left",
    "TFLOP", "counted", "at peak",
)  # fmt: skip


def text(
    chip: Chip, reports: Sequence[Report], step: dict[str, float], advice: Sequence[str]
) -> str:
    """The table, then collectives, faults and advice.

    Args:
      step: figures of a whole step, see `summary`.
    """
    rows = [_row(report) for report in reports]
    parts = ["", _aligned([COLUMNS, *rows]), ""]
    parts += [
        "Memory in GiB per device (output: what is not written over an argument; beside: other",
        "live arrays). TFLOP of one call and device: executed, by hand; counted: the compiler's",
        "own count, which takes a loop's body once. At peak: seconds of one call at data-sheet",
        f"rates of {chip.name} ({chip.flops / 1e12:.0f} TFLOP/s, {chip.memory_rate / 1e9:.0f} GB/s"
        f" memory, {chip.link_rate / 1e9:.0f} GB/s links, {chip.network_rate / 1e9:.1f} GB/s"
        " network), and by what it is bound.",
        "",
        "Collectives, per call and device:",
        _aligned([("program", "kind", "places", "executed", "MiB sent"), *_collectives(reports)]),
        "",
        f"One step at these peaks: {step['seconds']:.1f} s (rollouts {step['rollout_seconds']:.1f},"
        f" update {step['update_seconds']:.1f}), every response at its limit; the update's"
        f" arithmetic at 40 % of peak: {step['update_seconds_at_40']:.1f} s.",
        "",
    ]
    faults = [
        f"FAULT  {r.program}: {check}: {fault}"
        for r in reports
        for check, found in r.faults.items()
        for fault in found[:3]
    ]
    checked = sorted({check for r in reports for check in r.faults})
    bad = {check for r in reports for check, found in r.faults.items() if found}
    parts += [f"ok     {check}" for check in checked if check not in bad]
    parts += faults
    over = [r for r in reports if not r.fits]
    parts += [f"REFUSED {r.program}: {r.refused}" for r in over if r.refused]
    if over:
        parts += ["", "Does not fit:", *(f"  {line}" for line in advice)]
    else:
        least = min(r.available - r.needed for r in reports) / GIB
        parts += ["", f"Fits, {least:.1f} GiB to spare."]
    return "\n".join(parts)


def summary(reports: Sequence[Report]) -> dict[str, float]:
    """Seconds of a step at peak rates, programs one after another."""
    halves = {True: 0.0, False: 0.0}
    arithmetic = 0.0
    for report in reports:
        halves[report.program in ROLLOUT] += report.calls * report.seconds.least
        if report.program not in ROLLOUT:
            arithmetic += report.calls * report.seconds.arithmetic
    return {
        "seconds": halves[True] + halves[False],
        "rollout_seconds": halves[True],
        "update_seconds": halves[False],
        "update_seconds_at_40": arithmetic / 0.4,
    }


def as_json(report: Report) -> dict[str, Any]:
    """A report as plain values."""
    found = report._asdict()
    found["memory"] = report.memory and {**report.memory._asdict(), "total": report.memory.total}
    found["seconds"] = {**report.seconds._asdict(), "bound": report.seconds.bound}
    return {**found, "fits": report.fits}


def _row(report: Report) -> tuple[str, ...]:
    memory = report.memory
    cells = ["-"] * 4
    if memory:
        output = memory.outputs - memory.aliased
        cells = [_gib(x) for x in (memory.arguments, memory.temporaries, output, memory.beside)]
    counted = report.flops["compiler"]
    return (
        report.program,
        str(report.calls),
        *cells,
        _gib(report.needed),
        _gib(report.available),
        _gib(report.available - report.needed),
        f"{report.flops['executed'] / 1e12:.2f}",
        "-" if counted is None else f"{counted / 1e12:.2f}",
        f"{report.seconds.least:.3f} s {report.seconds.bound}",
    )


def _gib(x: float) -> str:
    return f"{x / GIB:.2f}"


def _collectives(reports: Sequence[Report]) -> list[tuple[str, ...]]:
    return [
        (
            report.program,
            kind,
            str(found["places"]),
            str(found["executions"]),
            f"{found['sent_bytes'] / 2**20:,.1f}",
        )
        for report in reports
        for kind, found in report.collectives.items()
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
