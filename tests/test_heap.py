"""Freed memory is kept: the second run of a program finds its pages as the first left them."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import jax, jax.numpy as jnp
from disco_jax import heap
assert heap.keep_freed_memory()
program = jax.jit(lambda x: jnp.sum(jnp.sort(jnp.sin(x), axis=0)[::-1] * x, axis=0))
x = jnp.ones((2**12, 2**12))
faults = []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    program(x).block_until_ready()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(*faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc's malloc")
def test_the_second_run_maps_no_memory_anew():
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    first, *_, last = map(int, found.stdout.split())
    assert last < first / 10, found.stdout
