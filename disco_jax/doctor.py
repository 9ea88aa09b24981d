"""What this machine has, and whether the parts work on it.

    python -m disco_jax.doctor [--model=PATH] [--workdir=DIR]

Prints one line per finding; exits with 1 if any of them is a fault.
"""

import argparse
import importlib.metadata
import pathlib
import platform
import shutil
import sys
from collections.abc import Callable, Iterator

from disco_jax.command import stoppable

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "transformers",
    "sentencepiece",
    "sympy",
    "ml_collections",
    "safetensors",
    "numpy",
)
OPTIONAL = {"pyarrow": "parquet", "datasets": "hub", "libtpu": "tpu"}

Finding = tuple[str, str]  # (subject, text); a fault is raised


def versions() -> Iterator[Finding]:
    yield "python", f"{platform.python_version()} on {platform.platform(terse=True)}"
    yield "disco_jax", importlib.metadata.version("disco-jax")
    for name in PACKAGES:
        yield name, importlib.metadata.version(name)
    for name, extra in OPTIONAL.items():
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, f"not installed; it comes with the extra: pip install -e '.[{extra}]'"


def devices() -> Iterator[Finding]:
    import jax
    import jax.numpy as jnp

    for kind in sorted({d.device_kind for d in jax.devices()}):
        count = sum(d.device_kind == kind for d in jax.devices())
        yield "devices", f"{count} x {kind} ({jax.default_backend()})"
    for device in jax.local_devices()[:1]:
        stats = device.memory_stats() or {}
        if "bytes_limit" in stats:
            yield "device memory", f"{stats['bytes_limit'] / 2**30:.1f} GiB each"
    total = float(jnp.sum(jnp.arange(1000.0)))
    if total != 499500.0:
        raise RuntimeError(f"the sum of 0..999 came out as {total}")


def disk(workdir: pathlib.Path) -> Iterator[Finding]:
    folder = next(p for p in (workdir.absolute(), *workdir.absolute().parents) if p.exists())
    yield "disk", f"{shutil.disk_usage(folder).free / 2**30:.1f} GiB free at {folder}"


def model(path: str) -> Iterator[Finding]:
    from disco_jax import setup
    from disco_jax.data import prompts
    from disco_jax.model import weights

    folder = setup.model_folder(path)
    dims = weights.read_dims(folder)
    yield "model", f"{path}: {dims.family}, {dims.layers} layers of width {dims.width}"
    tokenizer = prompts.load_tokenizer(str(folder))
    yield "tokenizer", f"{tokenizer.size} tokens, ends with {tokenizer.eos_ids}"
    ids = tokenizer.encode_prompt("Compute 17+25.")
    yield "chat template" if tokenizer.chat else "no template", tokenizer.show(ids)
    if tokenizer.size > dims.vocab:
        raise RuntimeError(f"{tokenizer.size} tokens, but the model knows {dims.vocab}")


def grader() -> Iterator[Finding]:
    from disco_jax.reward import Grader

    cases = [("5", "5", 1), ("6", "5", 0), ("x+1", "1+x", 1), ("x+1", "x+2", 0)]
    with Grader("math(think='none')", workers=1) as judge:
        verdicts = judge.grade((rf"so \boxed{{{answer}}}", gold) for answer, gold, _ in cases)
    for (answer, gold, expected), verdict in zip(cases, verdicts, strict=True):
        if verdict.reward != expected:
            raise RuntimeError(f"{answer} against {gold}: {verdict}, should be {expected}")
    yield "grader", f"{len(cases)} of {len(cases)} verdicts right"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m disco_jax.doctor", description=__doc__)
    parser.add_argument("--model", default="arithmetic", help="a model folder, or an embedded one")
    parser.add_argument("--workdir", default=".", type=pathlib.Path, help="where runs will be")
    args = parser.parse_args(argv)
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "versions": versions,
        "devices": devices,
        "disk": lambda: disk(args.workdir),
        "model": lambda: model(args.model),
        "grader": grader,
    }
    faults = 0
    for name, check in checks.items():
        try:
            for subject, text in check():
                print(f"  ok   {subject:<18} {text}", flush=True)
        except Exception as error:  # whatever is broken is what this program is to report
            faults += 1
            print(f"FAULT  {name:<18} {type(error).__name__}: {error}", flush=True)
    print("all is well" if not faults else f"{faults} fault{'s' if faults > 1 else ''}, see above")
    return 1 if faults else 0


if __name__ == "__main__":
    with stoppable():
        sys.exit(main())
