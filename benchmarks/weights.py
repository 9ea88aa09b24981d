"""Peak memory and time of loading and exporting a checkpoint: `python benchmarks/weights.py`.

The checkpoint has the shape of DeepSeek-R1-Distill-Qwen-1.5B (1.78 billion parameters, 3.6 GB of
random bfloat16 numbers in four files); its float32 parameters alone take 6.8 GiB. It is loaded onto
the first device and exported again in bfloat16, and every tensor of the copy is compared with the
original. 7.2 GB of disk are needed. Prints one JSON line; `peak_mib` is the process's resident
memory so far, which the operating system counts.
"""

import argparse
import json
import math
import pathlib
import platform
import resource
import tempfile
import time

import jax
import numpy as np
from tqdm import tqdm

from disco_jax.model import dims as model_dims
from disco_jax.model import folders, layout, weights
from disco_jax.model.tensor_files import DTYPES, TensorWriter
from disco_jax.pods.known import MODELS

DIMS = MODELS["DeepSeek-R1-Distill-Qwen-1.5B"]
FILES = 4


def make(folder: pathlib.Path) -> None:
    """Random tensors, one at a time: slices of a block of numbers, at another place for each."""
    rng = np.random.default_rng(0)
    block = (0.02 * rng.standard_normal(1 << 24, np.float32)).astype(DTYPES["BF16"])
    places = layout.places(DIMS)
    folder.mkdir()
    weight_map = {}
    for number in range(FILES):
        part = places[number::FILES]
        file = f"model-{number + 1:05d}-of-{FILES:05d}.safetensors"
        weight_map |= {place.name: file for place in part}
        with TensorWriter(
            folder / file, {place.name: (place.shape, block.dtype) for place in part}
        ) as writer:
            for place in part:
                size = math.prod(place.shape)
                start = int(rng.integers(len(block) // 2))
                writer.write(np.resize(block[start:], size).reshape(place.shape))
    (folder / folders.INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(model_dims.to_hf(DIMS, "bfloat16")))


def peak_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


class Bar:
    """A progress bar in bytes, as `on_tensor` moves it."""

    def __init__(self, what: str):
        self.bar = tqdm(desc=what, unit="B", unit_scale=True)

    def __call__(self, name: str, done: int, total: int) -> None:
        self.bar.total = total
        self.bar.set_postfix_str(name, refresh=False)
        self.bar.update(done - self.bar.n)
        if done == total:
            self.bar.close()


def measure(folder: pathlib.Path, out: pathlib.Path) -> dict:
    start_mib = peak_mib()
    begin = time.perf_counter()
    params = weights.load(folder, weights.read_dims(folder), on_tensor=Bar("load"))
    loaded, load_peak = time.perf_counter(), peak_mib()
    weights.save(out, DIMS, params, folder, dtype="bfloat16", on_tensor=Bar("export"))
    exported, peak = time.perf_counter(), peak_mib()
    parameters = sum(leaf.size for leaf in jax.tree.leaves(params))
    del params
    ours, theirs = (folders.stored_tensors(f, DIMS) for f in (out, folder))
    whole = {name: tuple(slice(n) for n in stored.shape) for name, stored in theirs.items()}
    same = sum(ours[n].read(i).tobytes() == theirs[n].read(i).tobytes() for n, i in whole.items())
    return {
        "benchmark": "weights",
        "parameters": parameters,
        "bytes": sum(stored.nbytes for stored in theirs.values()),
        "float32_mib": round(4 * parameters / 2**20),
        "before_mib": start_mib,
        "load_s": round(loaded - begin, 1),
        "load_peak_mib": load_peak,
        "export_s": round(exported - loaded, 1),
        "peak_mib": peak,
        "tensors": len(theirs),
        "identical": same,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder", type=pathlib.Path, help="where the checkpoint is kept; made where absent"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        checkpoint = args.folder or pathlib.Path(tmp) / "checkpoint"
        if not checkpoint.exists():
            make(checkpoint)
        print(json.dumps(measure(checkpoint, pathlib.Path(tmp) / "out")))
