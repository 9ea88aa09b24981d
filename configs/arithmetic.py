"""Learns built-in arithmetic from the embedded policy, on a laptop: `make demo`.

    python -m disco_jax.train --config=configs/arithmetic.py --workdir=runs/arithmetic

Two CPU cores, about 3 minutes; held-out pass@1 rises by 30 points or more (BUILD_NOTES.md has
three seeds). Another method: --config=configs/arithmetic.py:grpo (rows of objective/methods.py).
The loop, the losses and the sampler are those of a 7B run on a pod; only the sizes differ.
"""

from configs import base


def get_config(method: str = "disco_logl"):
    c = base.get_config(method)
    c.steps = 40
    c.questions = 32
    c.model.path = "arithmetic"
    c.model.dtype = "float32"
    c.model.remat = "none"
    c.model.scan = False
    c.data.train = "arithmetic(split='train', size=4096, levels=(1, 2, 3, 4), digits=2)"
    c.data.heldout = "arithmetic(split='heldout', size=200, levels=(1, 2, 3, 4), digits=2)"
    c.data.suffix = ""
    c.data.prompt_tokens = 40
    c.reward.policy = "math(think='none')"
    c.reward.workers = 1
    c.rollout.temperature = 1.0
    c.rollout.max_tokens = 88
    c.rollout.slots = 128
    c.rollout.least_slots = 128  # steps this cheap do not repay another compilation
    c.rollout.least_columns = 128
    c.optimizer.learning_rate = 2e-4
    c.optimizer.warmup_steps = 20
    # Nats per token. The paper's 1e-4 is for responses of thousands of tokens, these have 25.
    c.objective.penalty = c.objective.penalty.replace("delta=1e-4", "delta=1e-3")
    c.packing.row_tokens = 128
    c.packing.rows = 16
    c.packing.head_chunk = 4096
    c.eval.every = 20
    c.eval.samples = 4
    c.eval.temperature = 1.0
    c.eval.top_p = 1.0
    c.checkpoint.every = 10
    return c
