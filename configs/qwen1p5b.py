"""DeepSeek-R1-Distill-Qwen-1.5B on DeepScaleR-Preview: Table 2 of the paper, rows DisCO.

    python -m disco_jax.train --config=configs/qwen1p5b.py --workdir=runs/qwen1p5b \\
        --config.model.path=/models/DeepSeek-R1-Distill-Qwen-1.5B \\
        --config.data.train="deepscaler(path='/data/deepscaler.json')" \\
        --config.data.heldout="verl(path='/data/aime.parquet')"

L-ratio instead of log-L: --config=configs/qwen1p5b.py:disco_lratio. The same command on every host
of a pod. Does it fit, and how fast can it be at best?

    python -m disco_jax.compile_check --config=configs/qwen1p5b.py --topology=v5e:4x4

Paper: pass@1 averaged over six benchmarks at 8k tokens 0.533 (log-L), 0.524 (L-ratio); base model
0.376; 8 A100-40G, about 6 minutes a step, 1,400 steps.
Hardware: 16 TPU v5e (compile_check: 8.5 of 15.75 GiB) or 8 H200. Step, by compile_check's roofline
(data-sheet peaks, every response at 8,192 tokens; no measurement) on 16 v5e: 389 s of rollouts and
66 s of update; the update at 40 % of peak: 165 s.
"""

from configs import base


def get_config(method: str = "disco_logl"):
    c = base.get_config(method)
    c.model.path = "DeepSeek-R1-Distill-Qwen-1.5B"
    c.data.train = "deepscaler(path='deepscaler.json')"
    c.data.heldout = "verl(path='aime.parquet')"
    c.steps = 1400
    c.optimizer.learning_rate = 2e-6
    c.rollout.slots = 128
    return c
