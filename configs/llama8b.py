"""DeepSeek-R1-Distill-Llama-8B on DeepScaleR-Preview: Table 4 of the paper, rows DisCO.

    python -m disco_jax.train --config=configs/llama8b.py --workdir=runs/llama8b \\
        --config.model.path=/models/DeepSeek-R1-Distill-Llama-8B \\
        --config.data.train="deepscaler(path='/data/deepscaler.json')" \\
        --config.data.heldout="verl(path='/data/aime.parquet')"

L-ratio instead of log-L: --config=configs/llama8b.py:disco_lratio. The same command on every host
of a pod. Does it fit, and how fast can it be at best?

    python -m disco_jax.compile_check --config=configs/llama8b.py --topology=h200:8

Paper: pass@1 averaged over six benchmarks at 8k tokens 0.584 (log-L), 0.579 (L-ratio); base model
0.462; 1,000 steps (machine and time not given).
Hardware: 8 H200. Step, by compile_check's roofline (data-sheet peaks, every response at 8,192
tokens; no measurement) there: 380 s of rollouts and 120 s of update; the update at 40 % of peak:
300 s.
"""

from configs import base


def get_config(method: str = "disco_logl"):
    c = base.get_config(method)
    c.model.path = "DeepSeek-R1-Distill-Llama-8B"
    c.data.train = "deepscaler(path='deepscaler.json')"
    c.data.heldout = "verl(path='aime.parquet')"
    c.steps = 1000
    c.optimizer.learning_rate = 5e-7
    c.rollout.slots = 128
    return c
