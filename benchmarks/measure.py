"""The two models that the benchmarks share, repeated timing, and the one JSON line of a case."""

import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

from disco_jax.model.dims import ModelDims

MODELS = {
    "tiny": ModelDims(
        family="qwen2", vocab=512, width=256, layers=6, heads=4, kv_heads=2, head_dim=64, mlp=704,
        max_position=4096, tied=True,
    ),
    "smol": ModelDims(  # the sizes of SmolLM2-135M
        family="llama", vocab=49_152, width=576, layers=30, heads=9, kv_heads=3, head_dim=64,
        mlp=1536, max_position=8192, rope_theta=100_000.0, norm_eps=1e-5, tied=True,
    ),
}  # fmt: skip


def matrix_weights(dims: ModelDims) -> int:
    """Weights of the layers' matrices, without head and embedding."""
    attention = dims.width * dims.head_dim * 2 * (dims.heads + dims.kv_heads)
    return dims.layers * (attention + 3 * dims.width * dims.mlp)


def forward_flops(dims: ModelDims, sequences: int, length: int, head_positions: int) -> float:
    """Floating-point operations of a causal forward pass; the head only where it is needed."""
    matrices = 2 * matrix_weights(dims) * length
    head = 2 * dims.width * dims.vocab * head_positions
    attention = 4 * dims.heads * dims.head_dim * length * length / 2 * dims.layers
    return sequences * (matrices + head + attention)


class Timer:
    """Wall time, own processor time and the share of the machine that others took, per repeat."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float]] = []

    def run(self, function: Callable[[], Any], repeats: int) -> Any:
        """Calls `function`, which returns when its work is done, `repeats` times."""
        found = None
        for _ in range(repeats):
            busy, own, begin = _busy_s(), _own_s(), time.perf_counter()
            found = function()
            wall = time.perf_counter() - begin
            own = _own_s() - own
            others = max(0.0, _busy_s() - busy - own) / (wall * os.cpu_count())
            self.rows.append((wall, own, others))
        return found

    def summary(self, units: int, name: str) -> dict[str, Any]:
        """Best and median rate of `units` per call, and every repeat."""
        walls = [row[0] for row in self.rows]
        return {
            f"{name}_per_s_best": round(units / min(walls), 1),
            f"{name}_per_s_median": round(units / statistics.median(walls), 1),
            "wall_s": [round(wall, 3) for wall in walls],
            "cpu_s_best": round(min(row[1] for row in self.rows), 3),
            "others_share": [round(row[2], 2) for row in self.rows],
            "others_share_at_best": round(min(self.rows)[2], 2),
        }


def emit(**fields: Any) -> None:
    """Prints the case as one JSON line, with the peak memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fields |= {"peak_rss_mb": round(peak), "load1": round(os.getloadavg()[0], 2)}
    print(json.dumps(fields), flush=True)


def resident_mb() -> float:
    """Resident memory of this process now, MiB (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_s() -> float:
    """Processor seconds of everybody since the machine started (Linux)."""
    with open("/proc/stat") as file:
        ticks = [int(x) for x in file.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
