"""The process in which answers are judged. It reads requests and writes outcomes, one a line.

Its bounds are its own: above an idle worker it may grow by `memory_mib` of address space, and
the kernel ends it when one answer uses far more processor time than the deadline allows. It ends
itself when the process that started it is gone. The deadline is kept by `pool`, from outside.
"""

import json
import os
import resource
import sys
import threading
import time

from disco_jax.reward import policies
from disco_jax.reward.verdict import Outcome

ORPHAN_S = 1.0  # between looks at the parent
RECURSION = 2_000  # frames; the readers bound their own depth far below this


def main(policy: str, timeout_s: float, memory_mib: int) -> None:
    """Serves requests from stdin until it ends."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 0)
    os.dup2(2, 1)  # what a policy prints goes to stderr, not among the replies
    sys.setrecursionlimit(RECURSION)
    judging = policies.build(policy)
    judging.load()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _bound_memory(memory_mib)
    replies.write(b"ready\n")
    replies.flush()
    for line in requests:
        _bound_processor_time(timeout_s)
        outcome = _judge(judging.judge, *json.loads(line))
        replies.write(json.dumps(outcome).encode() + b"\n")
        replies.flush()


def _judge(judge, text: str, golds: list[str]) -> Outcome:
    try:
        return judge(text, tuple(golds))
    except MemoryError:
        return Outcome(0, "memory")
    except RecursionError:
        return Outcome(0, "unreadable: too deep")
    except Exception as error:
        return Outcome(0, f"error: {type(error).__name__}: {error}"[:500])


def _end_with(parent: int) -> None:
    """Ends this process, whatever it is doing, soon after its parent: an orphan has no reader."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_S)
    os._exit(1)


def _bound_memory(memory_mib: int) -> None:
    """Limits the address space, where the system enforces that (Linux does, macOS does not)."""
    try:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return
    limit = used + memory_mib * 2**20
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or limit <= hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _bound_processor_time(timeout_s: float) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(usage.ru_utime + usage.ru_stime + 2 * timeout_s) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or limit <= hard:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
