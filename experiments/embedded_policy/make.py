"""Makes the embedded starting policy: a tokenizer, and a small Qwen2 taught the form of an answer.

    python experiments/embedded_policy/make.py --out=runs/policy/worked --save-every=500
    python experiments/embedded_policy/make.py --init=runs/policy/worked-2500 --hasty --steps=600 \\
        --lr=1e-3 --out=disco_jax/assets/arithmetic

First it learns to work the steps out, only far enough to leave room to learn; then it picks up a
bad habit, to box an answer at once, the more often the longer the question. So it answers some
questions always, some never and most of them sometimes, and reinforcement has two things to find:
that working the steps out pays, and how to get them right. All examples are right answers, of the
training split; the held-out split is new to the policy.
"""

import argparse
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from disco_jax.data import order, prompts
from disco_jax.data.arithmetic import arithmetic, worked_example
from disco_jax.model import dims as model_dims
from disco_jax.model import logprobs, transformer, weights
from disco_jax.types import Rollouts
from disco_jax.update import packing

LEVELS, DIGITS = (1, 2, 3, 4), 2  # as in configs/arithmetic.py
HASTY = {"1": 0.4, "2": 0.65, "3": 0.8, "4": 0.85}
LONGEST = 96  # tokens of a worked example, at most
PAD, USER, ASSISTANT, END, UNKNOWN = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>", "<|unk|>"
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer(folder: pathlib.Path) -> None:
    """One token per printable ASCII character, and one for the opening of a box."""
    special = [PAD, USER, ASSISTANT, END, UNKNOWN]
    characters = ["\n", *map(chr, range(32, 127))]
    vocabulary = {token: i for i, token in enumerate(special + characters)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens([AddedToken(token, special=True) for token in special])
    inner.add_tokens([AddedToken("\\boxed{", normalized=False)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=PAD, eos_token=END, unk_token=UNKNOWN
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


def make_examples(tokenizer, size: int, hasty: bool) -> Rollouts:
    """Right answers in the shape of rollouts, one per question, worked out step by step.

    With `hasty`, a share of them (`HASTY`, by level) goes to the box at once.
    """
    questions = arithmetic("train", size, seed=1_000_003, levels=LEVELS, digits=DIGITS)
    prompt = [tokenizer.encode_prompt(q.problem) for q in questions]
    rng = np.random.default_rng(0)
    answer = []
    for question in questions:
        lines = worked_example(question).split("\n")
        at_once = hasty and rng.random() < HASTY[question.level]
        text = lines[-1] if at_once else "\n".join(lines)
        ids = tokenizer.inner.encode(text, add_special_tokens=False)
        answer.append([*ids, tokenizer.eos_ids[0]])
    prompt_QP, prompt_length_Q = prompts.pad_prompts(
        prompt, max(map(len, prompt)), tokenizer.pad_id
    )
    length_Q1 = np.array([[len(a)] for a in answer], np.int32)
    tokens_Q1T = np.full((size, 1, LONGEST), tokenizer.pad_id, np.int32)
    for tokens_1T, a in zip(tokens_Q1T, answer, strict=True):
        tokens_1T[0, : len(a)] = a
    logp = np.zeros(tokens_Q1T.shape, np.float32)
    return Rollouts(
        prompt_QP, prompt_length_Q, tokens_Q1T, length_Q1, np.ones_like(length_Q1, bool), logp
    )


def make_step(dims: model_dims.ModelDims, optimizer, none: int):
    """One step of maximum likelihood on a packed batch; `none` marks tokens of the prompt."""

    def loss(params, micro):
        h = transformer.hidden_states(
            params,
            dims,
            micro.tokens_BL,
            micro.position_BL,
            micro.segment_BL,
            dtype=jnp.float32,
            remat="none",
        )
        head = transformer.head_weights(params, dims)
        stats = logprobs.token_stats(h, head, micro.target_BL, 1.0, 1 << 20)
        answer_BL = micro.index_BL < none
        return -jnp.sum(jnp.where(answer_BL, stats.logp_BL, 0)) / jnp.sum(answer_BL)

    @jax.jit(donate_argnums=(0, 1))
    def step(params, state, micro):
        value, gradient = jax.value_and_grad(loss)(params, micro)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=3200)
    parser.add_argument("--examples", type=int, default=40_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--init", type=pathlib.Path, help="start from this policy")
    parser.add_argument("--hasty", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=0)
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    make_tokenizer(args.out)
    tokenizer = prompts.load_tokenizer(str(args.out), mode="chat")
    dims = model_dims.ModelDims(
        family="qwen2",
        vocab=128,
        width=args.width,
        layers=args.layers,
        heads=args.width // 16,
        kv_heads=args.width // 48,
        head_dim=16,
        mlp=5 * args.width // 2,
        max_position=1024,
        tied=True,
    )
    examples = make_examples(tokenizer, args.examples, args.hasty)
    if args.init:
        params = jax.device_put(weights.load(args.init, dims))
    else:
        params = transformer.init(jax.random.key(args.seed), dims)
    schedule = optax.warmup_cosine_decay_schedule(0, args.lr, 50, args.steps, args.lr / 20)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    state = optimizer.init(params)
    step = make_step(dims, optimizer, args.batch * LONGEST)
    start = time.time()
    for i in range(args.steps):
        indices = order.batch(args.examples, args.batch, args.seed, i)
        part = Rollouts(*(x[indices] for x in examples))
        (micro, *rest) = packing.pack(part, row_tokens=128, rows=args.batch * 5 // 8)
        assert not rest, "the batch takes more rows than planned for"
        params, state, value = step(params, state, micro)
        if i % 100 == 0 or i == args.steps - 1:
            print(f"step {i:5d}  loss {float(value):.4f}  {time.time() - start:6.1f} s", flush=True)
        if args.save_every and (i + 1) % args.save_every == 0:
            weights.save(args.out.with_name(f"{args.out.name}-{i + 1}"), dims, params, args.out)
    weights.save(args.out, dims, params, tokenizer_from=args.out)


if __name__ == "__main__":
    main()
