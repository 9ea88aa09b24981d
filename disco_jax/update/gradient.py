"""The two-step gradient: exact for every objective, whatever the micro-batches split.

  1. figures of the whole minibatch, micro-batch by micro-batch, no gradient kept: logp_QNT
  2. the objective and its gradient with respect to logp_QNT, a small array
  3. for each micro-batch, the forward pass again and its vjp with that array's slice, summed

Adding up the gradients of micro-batch losses instead would be another objective: the hinge on the
KL and the soft maximum over negatives are not linear in the micro-batches.

Where one micro-batch always holds the whole minibatch, the three steps are one program and the
forward pass of step 1 is saved.
"""

from collections.abc import Sequence
from typing import Any

import jax

from disco_jax.model import mesh as meshes
from disco_jax.model.lora import trained
from disco_jax.objective.objective import Objective, loss
from disco_jax.types import Batch, Metrics
from disco_jax.update.packing import MicroBatch
from disco_jax.update.passes import Figures, Passes


class Gradient:
    """The gradient of one objective through one set of passes."""

    def __init__(self, passes: Passes, objective: Objective, *, single: bool):
        """
        Args:
          single: one micro-batch always holds a whole minibatch.
        """
        self.passes, self.objective, self.single = passes, objective, single
        self.slopes = jax.jit(self._slopes, out_shardings=meshes.replicated(passes.mesh))
        self._whole = jax.jit(self._whole_gradient)

    def __call__(
        self, params, micros: Sequence[MicroBatch], batch: Batch, figures: Figures | None = None
    ) -> tuple[Any, Metrics]:
        """The gradient of the loss over the whole minibatch, and the objective's metrics.

        Args:
          params: float32; or with adapters (`lora.Adapted`), to which the gradient belongs then.
          micros: the packed minibatch.
          batch: what the objective needs of it.
          figures: of these very parameters, where they are known (the first minibatch after
            pi_old was refreshed): saves step 1.
        """
        if self.single:
            (micro,) = micros
            return self._whole(params, micro, batch)
        if figures is None:
            figures = self.passes.figures(params, micros)
        slopes, metrics = self.slopes(figures, batch)
        return self.passes.pull_back(params, micros, slopes), metrics

    def _loss(self, figures: Figures, batch: Batch):
        return loss(self.objective, figures.logp_QNT, batch, figures.entropy_QNT)

    def _slopes(self, figures: Figures, batch: Batch) -> tuple[Figures, Metrics]:
        """Step 2: d loss / d figures, None for what the objective does not look at."""
        slopes, metrics = jax.grad(self._loss, has_aux=True)(figures, batch)
        entropy = slopes.entropy_QNT if self.objective.needs_entropy else None
        return Figures(slopes.logp_QNT, entropy, None), metrics

    def _whole_gradient(self, params, micro: MicroBatch, batch: Batch):
        part, whole = trained(params)

        def value(part):
            return self._loss(self.passes.score(whole(part), micro, self.passes.empty()), batch)

        gradient, metrics = jax.grad(value, has_aux=True)(part)
        # Left to itself, the compiler keeps the whole gradient on every device (7B: 26 GiB).
        return meshes.constrain(self.passes.mesh, gradient), metrics
