"""Recomputes golden cases: `python -m disco_jax.objective.check DIR` (see disco_jax/golden)."""

import sys

from disco_jax.golden.check import main

if __name__ == "__main__":
    sys.exit(main())
