"""The heap of a process that computes on its CPU: freed memory is kept for the next program."""

import ctypes
import importlib.metadata
import importlib.util
import os

# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_NEVER = -1


def keep_freed_memory() -> bool:
    """Has glibc's malloc keep large blocks that are freed, where jax computes on the CPU alone.

    XLA:CPU allocates a program's temporaries for every run and frees them after it. By default
    each is mapped anew, and its pages are zeroed as they are touched: a quarter to a third of an
    update's processor time (BUILD_NOTES.md). The limit of one arena has to be set before a backend
    starts its threads: large blocks are not kept in the arenas that threads have of their own. The
    price is that the process stays as large as it once was.

    Returns:
      Whether it was done: False where an accelerator may compute, or malloc is not glibc's.
    """
    if not _only_cpu():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(
        mallopt(parameter, value)
        for parameter, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _NEVER), (_M_ARENA_MAX, 1))
    )


def _only_cpu() -> bool:
    """Whether jax has nothing but the CPU, found out without starting a backend."""
    if os.environ.get("JAX_PLATFORMS"):
        return os.environ["JAX_PLATFORMS"] == "cpu"
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return not plugins and importlib.util.find_spec("libtpu") is None
