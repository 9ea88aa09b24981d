"""The heap of a process that computes on its CPU: freed memory is kept for the next program."""

import ctypes

# <malloc.h>
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = -1


def keep_freed_memory() -> bool:
    """Tells glibc's malloc to keep large blocks that are freed; False where it is not glibc's.

    XLA:CPU allocates a program's temporaries for every run and frees them after it. By default
    each is mapped anew, and its pages are zeroed as they are touched: a fifth of an update's
    processor time, in one measurement (BUILD_NOTES.md). The price is that the process stays as
    large as it once was.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
