"""DeepSeek-R1-Distill-Llama-8B on DeepScaleR-Preview: Table 4 of the paper, rows DisCO.

    python -m disco_jax.train --config=configs/llama8b.py --workdir=runs/llama8b \\
        --config.model.path=/models/DeepSeek-R1-Distill-Llama-8B \\
        --config.data.train="deepscaler(path='/data/deepscaler.json')" \\
        --config.data.heldout="verl(path='/data/aime.parquet')"

L-ratio instead of log-L: --config=configs/llama8b.py:disco_lratio. The same command on every host
of a pod. Does it fit, and how fast can it be at best?

    python -m disco_jax.compile_check --config=configs/llama8b.py --topology=v5e:4x4

Paper: pass@1 averaged over six benchmarks at 8k tokens 0.584 (log-L), 0.579 (L-ratio); base model
0.462; 1,000 steps (machine and time not given). HARDWARE
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
