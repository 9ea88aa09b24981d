"""Questions, prompts and their order: from raw files to left-padded tokens."""
