"""DisCO: discriminative constrained optimisation of reasoning models, in JAX."""

__version__ = "0.1.0"
