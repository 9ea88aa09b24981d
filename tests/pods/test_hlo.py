"""Compiled text is read right: groups in every notation, loops, payloads, and the checks bite."""

import numpy as np
import pytest

from disco_jax.model.dims import ModelDims
from disco_jax.pods import checks, roofline
from disco_jax.pods.groups import parse_groups
from disco_jax.pods.hlo import Module

DIMS = ModelDims(
    family="qwen2", vocab=512, width=64, layers=5, heads=2, kv_heads=1, head_dim=32, mlp=96,
    max_position=4096,
)  # fmt: skip

LOOP = """HloModule jit_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%cond (p: (s32[], bf16[64,96])) -> pred[] {
  %n = s32[]{:T(128)} constant(5)
  %p = (s32[]{:T(128)}, bf16[64,96]{1,0:T(8,128)(2,1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%p), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %n), direction=LT
}

%until (p: (s32[], bf16[64,96])) -> pred[] {
  %p = (s32[], bf16[64,96]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = bf16[64,96] get-tuple-element(%p), index=1
  ROOT %go = pred[] fusion(%i, %x), kind=kLoop, calls=%decide
}

%decide (i: s32[], x: bf16[64,96]) -> pred[] {
  %i = s32[] parameter(0)
  %x = bf16[64,96] parameter(1)
  ROOT %yes = pred[] constant(true)
}

%body (p: (s32[], bf16[64,96])) -> (s32[], bf16[64,96]) {
  %p = (s32[], bf16[64,96]) parameter(0)
  %x = bf16[16,96] slice(%p)
  %gather = bf16[64,96]{1,0:T(8,128)(2,1)} all-gather(%x), replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %t = (s32[], bf16[64,96]) tuple(%p, %gather)
}

ENTRY %main (w: bf16[64,96]) -> f32[4096,512] {
  %w = bf16[64,96]{1,0} parameter(0)
  %while.1 = (s32[], bf16[64,96]) while(%w), condition=%cond, body=%body
  %while.2 = (s32[], bf16[64,96]) while(%w), condition=%until, body=%body
  %g = bf16[4096,512]{1,0} broadcast(%w), dimensions={}
  %reduce-start = bf16[4096,512]{1,0} all-reduce-start(%g), replica_groups={{0,1,2,3}}, to_apply=%add, metadata={op_name="transpose(jvp())/dot"}
  %move = (bf16[8,64]{1,0}, bf16[8,64]{1,0}, u32[], u32[]) collective-permute-start(%w), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  ROOT %out = f32[4096,512]{1,0} convert(%reduce-start)
}
"""  # noqa: E501


@pytest.mark.parametrize(
    "text,members",
    [
        ("replica_groups={{0,1},{2,3}}, x", [[0, 1], [2, 3]]),
        ("replica_groups=[2,2]<=[4], x", [[0, 1], [2, 3]]),
        ("replica_groups=[2,2]<=[2,2]T(1,0), x", [[0, 2], [1, 3]]),
        ("replica_groups=mesh['a'=2,'b'=2] {'b'}, x", [[0, 1], [2, 3]]),
        ("replica_groups=mesh['a'=2,'b'=2] {'a'}, x", [[0, 2], [1, 3]]),
        ("replica_groups=mesh['a'=2,'b'=2] {'a','b'}, x", [[0, 1, 2, 3]]),
        ("replica_groups=mesh['a'=4] {'a':(1)2}, x", [[0, 2], [1, 3]]),
        ("replica_groups=mesh['a'=4] {'a':(2)2}, x", [[0, 1], [2, 3]]),
        ("source_target_pairs={{0,1},{1,0}}, x", [[0, 1], [1, 0]]),
    ],
)
def test_groups(text, members):
    np.testing.assert_array_equal(parse_groups(text).members, members)


def test_loops_multiply():
    gathers = [c for c in Module(LOOP, unknown_trips=7).collectives() if c.kind == "all-gather"]
    assert [(c.times, c.loops) for c in gathers] == [(5, (5,)), (7, (None,))]
    assert gathers[0].bytes == 64 * 96 * 2
    assert gathers[0].wire_bytes == 5 * 64 * 96 * 2 * 3 / 4


def test_payloads_of_started_collectives():
    found = {c.kind: c for c in Module(LOOP).collectives()}
    assert found["all-reduce"].wire_bytes == 2 * 4096 * 512 * 2 * 3 / 4
    assert found["collective-permute"].bytes == 8 * 64 * 2
    assert found["collective-permute"].wire_bytes == 8 * 64 * 2


def test_network_and_links():
    """Between two slices of two, a reduction crosses the network with half of it per device."""
    reduce = [c for c in Module(LOOP).collectives() if c.kind == "all-reduce"]
    size = 4096 * 512 * 2
    assert roofline.traffic(reduce, 4) == (2 * size * 3 / 4, 0)
    assert roofline.traffic(reduce, 2) == (2 * size / 2, 2 * size / 2 / 2)


WHOLE = "  %g = bf16[4096,512]{1,0} broadcast(%w), dimensions={}\n"
ZEROS = """  %zero = bf16[]{:T(256)} constant(0)
  %zeros = bf16[4096,512]{1,0} broadcast(%zero), dimensions={}
"""
PART = "dynamic-update-slice(%zeros, %w, %n, %n)"
FUSED = """%place (into: bf16[4096,512], part: bf16[64,96]) -> bf16[4096,512] {
  %into = bf16[4096,512]{1,0} parameter(0)
  %part = bf16[64,96]{1,0} parameter(1)
  %half = bf16[64,96]{1,0} convert(%part)
  ROOT %written = bf16[4096,512]{1,0} dynamic-update-slice(%into, %half, %n, %n)
}

ENTRY"""


@pytest.mark.parametrize(
    "written,exact",
    [
        (ZEROS + f"  %g = bf16[4096,512]{{1,0}} {PART}\n", True),
        (ZEROS + "  %g = bf16[4096,512]{1,0} fusion(%zeros, %w), kind=kLoop, calls=%place\n", True),
        (ZEROS + f"  %f = bf16[4096,512]{{1,0}} {PART}\n  %g = bf16[] bitcast(%f)\n", True),
        (WHOLE, False),
        # Parts written into what is not zeros do add up.
        (ZEROS.replace("(0)", "(1)") + f"  %g = bf16[4096,512]{{1,0}} {PART}\n", False),
        ("  %g = bf16[4096,512]{1,0} fusion(%w, %w), kind=kLoop, calls=%place\n", False),
    ],
)
def test_a_gather_written_as_a_reduction_of_zeros_is_exact(written, exact):
    """The compiler gathers weights so, with the writing fused (seen for Llama-8B on 256 v6e)."""
    module = Module(LOOP.replace(WHOLE, written).replace("ENTRY", FUSED))
    context = checks.Context(DIMS, tokens=4096, row_tokens=4096, tensor=1, gradient=True)
    faults = checks.run(module, module.collectives(), context)
    assert bool(faults["gradients are reduced in float32"]) != exact


def test_checks_bite():
    module = Module(LOOP)
    found = module.collectives()
    context = checks.Context(DIMS, tokens=4096, row_tokens=4096, tensor=1, gradient=True)
    faults = checks.run(module, found, context)
    assert "bf16[4096,512]" in faults["gradients are reduced in float32"][0]
    assert "4096,512" in faults["no [tokens, vocabulary] array"][0]
    assert not faults["no gather above one layer within a loop"]
    assert not faults["no [L, L] array"]
    ring = LOOP.replace("%body", "%windowed_body_rs").replace(
        "all-gather(%x)", "collective-permute(%x)"
    )
    ring = ring.replace("bf16[64,96]{1,0:T(8,128)(2,1)} coll", "bf16[6400,96] coll")
    assert "bf16[6400,96]" in str(
        checks.run(Module(ring), Module(ring).collectives(), context).values()
    )
    # Reductions over tensor alone are of activations; those of other programs are no gradients.
    over_tensor = checks.run(module, found, context._replace(tensor=4))
    assert not over_tensor["gradients are reduced in float32"]
    small = context._replace(dims=DIMS.__class__(**{**vars(DIMS), "width": 1, "mlp": 1}))
    assert checks.run(module, found, small)["no gather above one layer within a loop"]
    square = LOOP.replace("f32[4096,512]{1,0} convert", "f32[4096,4096]{1,0} convert")
    assert checks.run(Module(square), [], context)["no [L, L] array"]
    exchange = LOOP.replace("all-gather(%x)", "all-to-all(%x)")
    exchange = exchange.replace("bf16[64,96]{1,0:T(8,128)(2,1)} all", "bf16[640,960] all")
    context = context._replace(tokens=1)
    assert checks.run(Module(exchange), Module(exchange).collectives(), context)[
        "no all-to-all of activations in a loop"
    ]
