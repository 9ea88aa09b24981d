"""DeepSeek-R1-Distill-Qwen-7B on DeepScaleR-Preview: Table 3 of the paper, rows DisCO.

    python -m disco_jax.train --config=configs/qwen7b.py --workdir=runs/qwen7b \\
        --config.model.path=/models/DeepSeek-R1-Distill-Qwen-7B \\
        --config.data.train="deepscaler(path='/data/deepscaler.json')" \\
        --config.data.heldout="verl(path='/data/aime.parquet')"

L-ratio instead of log-L: --config=configs/qwen7b.py:disco_lratio. The same command on every host
of a pod. Does it fit, and how fast can it be at best?

    python -m disco_jax.compile_check --config=configs/qwen7b.py --topology=v6e:4x4

Paper: pass@1 averaged over six benchmarks at 8k tokens 0.625 (log-L), 0.627 (L-ratio); base model
0.513; 8 H100, about 6.5 minutes a step, 1,000 steps.
Hardware: 16 TPU v6e or 8 H200. Step, by compile_check's roofline (data-sheet peaks, every response
at 8,192 tokens; no measurement) on 8 H200: 280 s of rollouts and 110 s of update; the update at 40
% of peak: 270 s.
"""

from configs import base


def get_config(method: str = "disco_logl"):
    c = base.get_config(method)
    c.model.path = "DeepSeek-R1-Distill-Qwen-7B"
    c.data.train = "deepscaler(path='deepscaler.json')"
    c.data.heldout = "verl(path='aime.parquet')"
    c.steps = 1000
    c.optimizer.learning_rate = 1e-6
    c.rollout.slots = 128
    return c
