"""Freed memory is kept: later runs of a program find their pages as the earlier ones left them."""

import importlib.metadata
import os
import platform
import subprocess
import sys

import pytest

from disco_jax import heap

PROGRAM = """
import resource
import jax, jax.numpy as jnp
from disco_jax.command import launch

def main(command):
    # Both factors are temporaries above 64 MiB, glibc's limit of an arena.
    width = 2**12 + 8
    program = jax.jit(lambda x: jnp.cos(x).T @ (jnp.sin(x) @ jnp.ones((width, 8))))
    x = jnp.ones((2**12, width))
    faults = []
    for _ in range(16):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        program(x).block_until_ready()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(*faults)
    return 0

launch(main, ["program", "--config=configs/base.py"], workdir=False)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc's malloc")
def test_under_a_command_later_runs_stop_mapping_memory_anew():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment
    )
    first, *later = map(int, found.stdout.split())
    # Not at once: a small block that lands in a freed large one sends the next run to fresh memory.
    assert min(later) < first / 10, found.stdout


@pytest.mark.parametrize("platforms", ["cuda", "cuda,cpu", "tpu"])
def test_a_named_accelerator_leaves_the_heap_as_it_is(monkeypatch, platforms):
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    assert not heap.keep_freed_memory()


def test_an_installed_accelerator_plugin_leaves_the_heap_as_it_is(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [group])
    assert not heap.keep_freed_memory()
