"""The heap of a process that computes on its CPU: freed memory is kept for the next program."""

import ctypes
import importlib.metadata
import importlib.util
import os

# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_NEVER = -1


def only_cpu() -> bool:
    """Whether jax has nothing but the CPU to compute on, found out without starting a backend."""
    if os.environ.get("JAX_PLATFORMS"):
        return os.environ["JAX_PLATFORMS"] == "cpu"
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return not plugins and importlib.util.find_spec("libtpu") is None


def keep_freed_memory() -> bool:
    """Tells glibc's malloc to keep large blocks that are freed; False where it is not glibc's.

    XLA:CPU allocates a program's temporaries for every run and frees them after it. By default
    each is mapped anew, and its pages are zeroed as they are touched: a third of an update's
    processor time, in one measurement (BUILD_NOTES.md). One arena serves all threads, since a block
    above 64 MiB that another thread asks for is mapped anew whatever the other settings say: call
    this before a backend has started its threads. The price is that the process stays as large as
    it once was.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(
        mallopt(parameter, value)
        for parameter, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_ARENA_MAX, 1))
    )
