"""The command `python -m disco_jax.objective.check DIR`: recomputes golden cases.

DIR holds index.json and one .npz per case. Prints one JSON line per case and a closing count; the
exit status is 1 if a case failed, 2 if DIR cannot be read. A case is ok if every number in it comes
out in float64 to 1e-9 and in float32 to 2e-5 (and 2e-6 absolute); `max_rel_err` is of float64.
"""

import argparse
import json
import pathlib
import sys
import zipfile

import jax
import numpy as np

from disco_jax.golden import fields
from disco_jax.golden.case import Case

QUICKLY = {"xla_backend_optimization_level": 0}  # compiling takes longer than running
TOLERANCES = {"float64": (1e-9, 1e-15), "float32": (2e-5, 2e-6)}  # relative, absolute
FLOATS = {"new_logp", "old_logp", "ref_logp", "reward", "logits"}
INPUTS = FLOATS | {"mask", "uid", "tokens"}
# The code's own numbers mix up the questions where groups are unequal: nothing to reproduce.
WRONG = {"official_unequal_groups": {"official_loss", "official_grad"}}


def error(ours, golden, dtype: str) -> float:
    """Greatest |ours - golden| / (|golden| + absolute / relative): at most the relative tolerance
    exactly where |ours - golden| <= absolute + relative |golden|. nan equals nan; 0 if empty."""
    relative, absolute = TOLERANCES[dtype]
    ours, golden = np.asarray(ours, np.float64), np.asarray(golden, np.float64)
    if ours.shape != golden.shape or (np.isnan(ours) != np.isnan(golden)).any():
        return float("inf")
    off = np.abs(ours - golden) / (np.abs(golden) + absolute / relative)
    return float(np.nanmax(off, initial=0.0))


def errors(entry: dict, arrays: dict, dtype: str, score: str) -> dict[str, float]:
    """The error of every field of a case that is not one of its inputs."""
    method, h = entry["method"], entry["hyperparameters"]
    if method == "official_eos_mask":
        mask = fields.first_end(arrays["responses"], h["eos_token"])
        return {"mask": error(mask, arrays["mask"], dtype)}
    names = set(arrays) - INPUTS - WRONG.get(method, set())
    names |= {"new_logp"} & set(arrays) if "logits" in arrays else set()
    if dtype == "float64":
        names = {name for name in names if not name.endswith("_f32")}

    def numbers(floats):
        case = Case(method, h, arrays | floats, score)
        return {name: fields.number(case, name.removesuffix("_f32")) for name in sorted(names)}

    with jax.enable_x64(dtype == "float64"):
        ours = jax.jit(numbers, compiler_options=QUICKLY)(
            {k: arrays[k].astype(dtype) for k in FLOATS & set(arrays)}
        )
    return {name: error(ours[name], arrays[name], dtype) for name in ours}


def scores(entry: dict) -> list[str]:
    """The score a case names; both, of which either may fit, where it names none."""
    named = f"{entry['id']} {entry['method']} {entry['hyperparameters'].get('score', '')}"
    found = [part for text, part in (("logL", "log_l"), ("Lratio", "l_ratio")) if text in named]
    return found or ["log_l", "l_ratio"]


def check(entry: dict, arrays: dict) -> dict:
    """{"id", "ok", "max_rel_err"}, and where not ok the fields that are off."""
    attempts = []
    for score in scores(entry):
        found = {dtype: errors(entry, arrays, dtype, score) for dtype in TOLERANCES}
        wrong = {
            f"{name} ({dtype})": off
            for dtype, (relative, _) in TOLERANCES.items()
            for name, off in found[dtype].items()
            if not off <= relative
        }
        worst = max(found["float64"].values(), default=0.0)
        attempts.append({"id": entry["id"], "ok": not wrong, "max_rel_err": worst, "wrong": wrong})
        if not wrong:
            break
    best = min(attempts, key=lambda attempt: attempt["max_rel_err"])
    return {key: value for key, value in best.items() if key != "wrong" or value}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m disco_jax.objective.check", description=__doc__
    )
    parser.add_argument("directory", type=pathlib.Path, help="holds index.json and the .npz files")
    directory = parser.parse_args(argv).directory
    try:
        cases = json.loads((directory / "index.json").read_text())["cases"]
    except (OSError, ValueError, KeyError) as trouble:
        print(f"{directory}: no readable index.json with cases ({trouble})", file=sys.stderr)
        return 2
    passed = 0
    for entry in cases:
        try:
            with np.load(directory / entry["file"], allow_pickle=False) as data:
                line = check(entry, dict(data))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as trouble:
            line = {"id": entry.get("id"), "ok": False, "max_rel_err": None}
            line["error"] = f"{type(trouble).__name__}: {trouble}"
        passed += line["ok"]
        print(json.dumps(line), flush=True)
    print(json.dumps({"cases": len(cases), "ok": passed}))
    return 0 if passed == len(cases) else 1
