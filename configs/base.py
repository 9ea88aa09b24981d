"""Every key of a run, with the paper's values (section 6) for the 1.5B model.

The other files in this folder change what they must. On the command line, any key:
    python -m disco_jax.train --config=configs/arithmetic.py --workdir=runs/tau5 \\
        --config.objective.surrogate="dro(tau=5)"
Values that are call-like strings (`dro(tau=10)`) are parsed safely, by the file named beside them.
"""

import ml_collections

from disco_jax.objective.methods import METHODS


def get_config(method: str = "disco_logl") -> ml_collections.ConfigDict:
    """`method`: a row of objective/methods.py."""
    if method not in METHODS:
        raise ValueError(f"method {method!r} is not one of {', '.join(METHODS)}")
    c = ml_collections.ConfigDict()
    c.seed = 0  # with the step, decides data order and every random number
    c.steps = 1400  # of Algorithm 1, each with its own rollouts
    c.questions = 128  # sampled per step
    c.responses = 8  # N, to every question
    c.minibatches = 4  # updates per step; divides `questions`

    c.model = ml_collections.ConfigDict()
    c.model.path = ""  # folder in Hugging Face layout, or the name of an embedded model
    c.model.dtype = "bfloat16"  # of activations and matrices; masters and losses are float32
    c.model.remat = "full"  # none | dots | full: what the backward pass keeps
    c.model.attention = "auto"  # auto | xla | splash (TPU) | triton (GPU): model/attention.py
    c.model.scan = True  # one compiled layer for all; False runs faster on CPU, compiles longer
    c.model.lora_rank = 0  # above 0: trains low-rank adapters, the model itself stays as it is
    c.model.lora_alpha = 32.0  # adapters are scaled by alpha / rank
    c.model.lora_targets = ("q", "k", "v", "o", "gate", "up", "down")  # matrices with an adapter

    c.data = ml_collections.ConfigDict()
    c.data.train = "arithmetic(split='train', size=4096)"  # data/questions.py
    c.data.heldout = "arithmetic(split='heldout', size=256)"
    c.data.suffix = "Let's think step by step and output the final answer within \\boxed{}."
    c.data.template = "auto"  # auto | chat | raw: the tokenizer's chat template
    c.data.think = "template"  # template | open | none: whether the prompt opens <think>
    c.data.prompt_tokens = 1024
    c.data.too_long = "drop"  # drop | refuse: questions with longer prompts; never cut
    c.data.ungradable = "refuse"  # refuse | drop: questions whose golds the grader cannot read
    c.data.benchmarks = ""  # folder of the paper's six test files: what repeats them is dropped
    c.data.order = "epochs"  # epochs | easy_first(start=0.3, steps=700): data/selection.py
    c.data.success = ""  # responses of an evaluation of `train` (jsonl): p(q) for the next key
    c.data.difficulty = (0.0, 1.0)  # and `order`; questions with p(q) outside are dropped

    c.reward = ml_collections.ConfigDict()
    c.reward.policy = "math(think='required')"  # reward/policies.py
    c.reward.workers = 8  # grader processes
    c.reward.timeout_s = 3.0  # per answer, then it is wrong
    c.reward.memory_mib = 512  # per answer

    c.rollout = ml_collections.ConfigDict()
    c.rollout.temperature = 0.6  # also divides the logits in every loss
    c.rollout.top_k = 0  # most likely tokens to draw from; 0: all
    c.rollout.top_p = 1.0
    c.rollout.min_p = 0.0  # of the likeliest token's probability
    c.rollout.max_tokens = 8192  # T, of a response
    c.rollout.slots = 128  # decoded at once, over all processes' devices; 0: as memory allows
    c.rollout.prefill_questions = 16  # prompts in one prefill
    c.rollout.steps_per_dispatch = 32  # decoding steps between two looks of the host, at most
    c.rollout.least_slots = 4  # the batch shrinks to this as responses finish; slots: never
    c.rollout.least_columns = 128  # least width of the cache; wider ones follow, 1.4 times each
    c.rollout.refills = 0  # dynamic sampling: batches sampled on top, at most, until `questions`
    # of them have right and wrong responses; off in the paper
    c.rollout.backend = "native"  # native | jetstream: google-jetstream's Driver, an extra
    c.rollout.replay = ""  # folder of saved rollouts: step k trains on its step k, see replay.py

    c.objective = ml_collections.ConfigDict(METHODS[method])  # weight, score, length, surrogate,
    # penalty (call-like strings, objective/methods.py) and the entropy coefficient
    c.objective.questions = "all"  # denominator: all | valid (those with both kinds of answers)

    c.optimizer = ml_collections.ConfigDict()
    c.optimizer.learning_rate = 2e-6
    c.optimizer.warmup_steps = 0  # optimiser steps of linear warm-up
    c.optimizer.b1 = 0.9
    c.optimizer.b2 = 0.999
    c.optimizer.eps = 1e-8
    c.optimizer.weight_decay = 0.01  # on every parameter
    c.optimizer.clip_norm = 1.0  # global norm
    c.optimizer.offload = False  # moments wait in host memory between updates

    c.packing = ml_collections.ConfigDict()
    c.packing.row_tokens = 9216  # L, of a packed row; at least prompt_tokens + max_tokens - 1
    c.packing.rows = 1  # of a micro-batch, on each device of data x fsdp; B is their product
    c.packing.head_chunk = 1024  # tokens of a device whose logits exist at once

    # data, fsdp, tensor; -1 takes the devices that are left. Devices of a CPU left out only sample.
    c.mesh = (1, -1, 1)

    c.eval = ml_collections.ConfigDict()
    c.eval.every = 200  # steps; before the first and after the last step in any case
    c.eval.samples = 16  # k, responses per held-out question
    c.eval.temperature = 0.6
    c.eval.top_k = 0
    c.eval.top_p = 0.95  # the paper is silent; this is the official code's
    c.eval.min_p = 0.0
    c.eval.max_tokens = c.rollout.get_oneway_ref("max_tokens")  # the same unless set
    c.eval.benchmarks = ""  # names of data.benchmarks, evaluated too: all | aime24,amc23 | ...
    c.eval.select = "heldout"  # picks policy_best: heldout | benchmarks (on the test sets, as the
    # paper does: its scores are then not those of unseen questions)

    c.checkpoint = ml_collections.ConfigDict()
    c.checkpoint.every = 20  # steps; after the last one and on SIGTERM in any case
    c.checkpoint.keep = 2  # newest checkpoints on disk

    c.log = ml_collections.ConfigDict()
    c.log.gap_alarm = 0.1  # nats: a line warns where sampler and trainer differ more per token
    c.log.rollouts_full = False  # keep every step's, with tokens and log-probs, in WORKDIR/rollouts
    c.log.rollouts_every = 10  # steps between those whose responses are saved as text
    return c
