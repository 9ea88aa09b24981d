"""One decoder for Llama, Qwen2 and Qwen3: weights, log-probabilities, mesh."""
