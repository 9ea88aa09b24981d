"""Makes the fixtures of tests/model/data: what transformers computes for small checkpoints.

`README.md` has the command. Needs torch and transformers (the extra `parity`); nothing else here
does.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "model" / "data"
BATCH, LENGTH, PROMPT, CONTINUATION = 2, 40, 12, 24
LEAST_GAP = 2e-3  # between the best two logits on the greedy path: no rounding turns it

SIZES = {
    "vocab_size": 160,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "eager",
}
LLAMA3_ROPE = {
    # An original length at which the 8 frequencies of a head fall into all three regimes.
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# name -> (configuration, dtype of the checkpoint, largest file)
CASES = {
    "llama3": (
        transformers.LlamaConfig(intermediate_size=96, rope_parameters=LLAMA3_ROPE, **SIZES),
        torch.bfloat16,
        "100KB",
    ),
    "qwen2": (
        transformers.Qwen2Config(intermediate_size=48, **SIZES),
        torch.float32,
        "5GB",
    ),
    "qwen2_tied": (
        transformers.Qwen2Config(intermediate_size=96, tie_word_embeddings=True, **SIZES),
        torch.float16,
        "5GB",
    ),
    "qwen3": (
        transformers.Qwen3Config(intermediate_size=96, head_dim=24, **SIZES),
        torch.bfloat16,
        "5GB",
    ),
}


def randomise(model: torch.nn.Module) -> None:
    """Weights at which every part of the model matters: no bias of 0, no norm of 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape)
            if "norm" in name:
                parameter.copy_(1 + 0.3 * noise)
            elif parameter.ndim == 1:
                parameter.copy_(0.5 * noise)
            else:
                parameter.copy_(1.2 * parameter.shape[1] ** -0.5 * noise)


def logits_of(model: torch.nn.Module, tokens_BL: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(tokens_BL).long()).logits.numpy()


def greedy(model: torch.nn.Module, prompt_BP: np.ndarray, count: int) -> np.ndarray:
    """[B, count] most likely tokens, one after the other."""
    tokens_BL = prompt_BP
    for _ in range(count):
        last_BV = logits_of(model, tokens_BL)[:, -1]
        best_B2 = np.sort(last_BV, axis=-1)[:, -2:]
        gap = float(np.diff(best_B2).min())
        assert gap > LEAST_GAP, f"two tokens are {gap:.1e} apart: take another seed"
        tokens_BL = np.concatenate([tokens_BL, last_BV.argmax(-1)[:, None]], axis=1)
    return tokens_BL[:, prompt_BP.shape[1] :].astype(np.int32)


def make(name: str, seed: int) -> None:
    config, dtype, file_size = CASES[name]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomise(model)
    folder = DATA / name
    model.to(dtype).save_pretrained(folder, max_shard_size=file_size)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    rng = np.random.default_rng(seed)
    tokens_BL = rng.integers(0, config.vocab_size, (BATCH, LENGTH)).astype(np.int32)
    np.savez_compressed(
        folder / "expected.npz",
        tokens_BL=tokens_BL,
        logits_BLV=logits_of(model, tokens_BL),
        greedy_BT=greedy(model, tokens_BL[:, :PROMPT], CONTINUATION),
    )
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(json.dumps({"case": name, "transformers": transformers.__version__, "bytes": size}))


def make_smollm2(path: pathlib.Path) -> None:
    """Logits of SmolLM2-135M as transformers reads its GGUF file: every 97th of 32 positions."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    tokens_BL = np.random.default_rng(0).integers(0, 49152, (1, 32)).astype(np.int32)
    logits_BLV = logits_of(model, tokens_BL)
    np.savez_compressed(
        DATA / "smollm2.npz",
        tokens_BL=tokens_BL,
        logits_BLV=logits_BLV[..., ::97],
        best_BL=logits_BLV.argmax(-1).astype(np.int32),
    )
    size = (DATA / "smollm2.npz").stat().st_size
    print(json.dumps({"case": "smollm2", "bytes": size}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smollm2", type=pathlib.Path, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    args = parser.parse_args()
    for case in CASES:
        make(case, args.seed)
    if args.smollm2 is not None:
        make_smollm2(args.smollm2)
