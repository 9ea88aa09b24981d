"""With bfloat16 activations, everything that is added up is added up in float32."""

import jax
import jax.numpy as jnp
import pytest
from jax.extend import core

from disco_jax.model import lora as adapters
from disco_jax.model import mesh as meshes
from disco_jax.model.lora import Adapted, Lora
from disco_jax.update.packing import MicroBatch
from disco_jax.update.passes import Figures, Passes

SUMS = ("dot_general", "reduce_sum", "scatter-add", "psum", "reduce_scatter")


def equations(jaxpr):
    """All of them, those of inner programs included."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from equations(getattr(inner, "jaxpr", inner))


@pytest.mark.parametrize("spec", [None, Lora(2, 4.0, ("q", "down"))], ids=["full", "lora"])
def test_sums_of_the_gradient_are_float32(tiny, spec):
    """Also the sums over devices, then: each reduces what a product or a sum put out."""
    dims, params = tiny
    mesh = meshes.make_mesh((2, 2, 2))
    passes = Passes(
        dims, mesh, shape=(2, 2, 4), temperature=0.6, dtype=jnp.bfloat16, remat="full", chunk=8,
        lora=spec,
    )  # fmt: skip
    total = params
    if spec:
        total = adapters.init(spec, params, jax.random.key(0))
        params = Adapted(adapters.freeze(params, jnp.bfloat16), total)
    micro = MicroBatch(*[jax.ShapeDtypeStruct((4, 16), jnp.int32)] * 5)
    figure = jax.ShapeDtypeStruct((2, 2, 4), jnp.float32)
    program = jax.make_jaxpr(lambda *x: passes._pull_back(*x[:3], total=x[3]))(
        params, micro, Figures(figure, figure, None), total
    )
    sums = [equation for equation in equations(program.jaxpr) if equation.primitive.name in SUMS]
    floats = [
        (out.aval.dtype, equation)
        for equation in sums
        for out in equation.outvars
        if jnp.issubdtype(out.aval.dtype, jnp.floating)
    ]
    assert len(floats) > 20
    for dtype, equation in floats:
        assert dtype == jnp.float32, equation
