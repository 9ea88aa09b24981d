"""The update: packing, two-step gradient, optimiser, checkpoints."""
