"""Numbers computed elsewhere, recomputed with the parts of `disco_jax.objective`."""
