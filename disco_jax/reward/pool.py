"""Killable graders: each answer is judged in a process with a deadline and a memory bound.

A worker is a fresh interpreter started with `subprocess`: nothing of this process is copied (a
process that holds JAX must not fork) and `__main__` is not imported again. One thread per worker
hands it one answer at a time over a pipe and kills it when the deadline passes, so grading works
from any thread, under asyncio (`asyncio.wrap_future(grader.submit(...))`) and beside decoding.
"""

import collections
import queue
import threading
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from disco_jax.reward import policies
from disco_jax.reward.process import Worker
from disco_jax.reward.verdict import Outcome, Verdict

JOIN_S = 5.0  # a thread notices the death of its worker at once
REMEMBERED = 20_000  # outcomes kept, so that a repeated answer is judged once
LONGEST_KEY = 8_000  # texts longer than this are judged anew


class Grader:
    """Grades responses under one policy.

    Use it as a context manager; without one, `close()` ends the workers (they also end by
    themselves when this process does). Workers start with the first answer that needs one.

    Args:
      policy: a call-like string, see `policies`.
      workers: processes at most.
      timeout_s: wall-clock seconds per answer, counted from the moment a worker takes it.
      memory_mib: what one answer may use above an idle worker.

    Raises:
      ValueError: an unknown policy, or a bound that is not positive.
    """

    def __init__(
        self,
        policy: str = policies.DEFAULT,
        *,
        workers: int = 2,
        timeout_s: float = 3.0,
        memory_mib: int = 512,
    ):
        for name, value in (("workers", workers), ("timeout_s", timeout_s)):
            if not value > 0:
                raise ValueError(f"Grader: {name}={value!r} must be positive")
        if memory_mib < 64:
            raise ValueError(f"Grader: memory_mib={memory_mib!r} must be at least 64")
        self._policy = policies.build(policy)
        self._limits = (policy, float(timeout_s), int(memory_mib))
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._workers: list[Worker] = []
        self._threads: list[threading.Thread] = []
        self._most = workers
        self._lock = threading.Lock()
        self._waiting: dict[tuple, list[Future]] = {}
        self._known: collections.OrderedDict[tuple, Outcome] = collections.OrderedDict()
        self._closed = False
        self._finalizer = weakref.finalize(self, _stop, self._tasks, self._workers)

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers at once; answers still waiting get a RuntimeError."""
        with self._lock:
            self._closed = True
            waiting = [future for futures in self._waiting.values() for future in futures]
            self._waiting.clear()
        self._finalizer()
        for future in waiting:
            future.set_exception(RuntimeError("Grader: closed before this answer was judged"))
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(JOIN_S)

    def submit(self, response: str, golds: Any) -> "Future[Verdict]":
        """Starts grading one response and returns at once.

        Args:
          response: what the model wrote, without the prompt.
          golds: one acceptable answer or several; strings, numbers or an array.

        Raises:
          RuntimeError: the grader is closed.
        """
        begin = time.perf_counter()
        golds = policies.gold_texts(golds)
        future: Future[Verdict] = Future()
        future.set_running_or_notify_cancel()
        look = self._policy.first_look(response, golds)
        if isinstance(look, Outcome):
            future.set_result(Verdict(*look, ms=1e3 * (time.perf_counter() - begin)))
            return future
        key = (look, golds)
        with self._lock:
            if self._closed:
                raise RuntimeError("Grader: submit after close")
            if key in self._known:
                future.set_result(Verdict(*self._known[key], ms=0.0))
            elif key in self._waiting:
                self._waiting[key].append(future)
            else:
                self._waiting[key] = [future]
                self._tasks.put(key)
                if len(self._workers) < min(self._most, len(self._waiting)):
                    self._add_worker()
        return future

    def _add_worker(self) -> None:
        worker = Worker(*self._limits)
        thread = threading.Thread(
            target=_serve,
            args=(weakref.ref(self), self._tasks, worker),
            name="grader",
            daemon=True,
        )
        self._workers.append(worker)
        self._threads.append(thread)
        thread.start()

    def grade(self, pairs: Iterable[tuple[str, Any]]) -> list[Verdict]:
        """The verdicts of `(response, golds)` pairs, in their order."""
        return [future.result() for future in [self.submit(*pair) for pair in pairs]]

    def _settle(self, key: tuple, result: Outcome | Exception, ms: float) -> None:
        with self._lock:
            futures = self._waiting.pop(key, [])
            if isinstance(result, Outcome) and _lasting(result) and len(key[0]) <= LONGEST_KEY:
                self._known[key] = result
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
        for future in futures:
            if isinstance(result, Outcome):
                future.set_result(Verdict(*result, ms=ms))
            else:
                future.set_exception(result)


def _lasting(outcome: Outcome) -> bool:
    """Whether the answer decided the outcome, and not the state of the machine."""
    return outcome.reason.partition(":")[0] not in ("timeout", "memory", "crash")


def _serve(grader_ref: weakref.ref, tasks: queue.SimpleQueue, worker: "Worker") -> None:
    """One worker's thread: takes tasks until it gets None."""
    while (key := tasks.get()) is not None:
        begin = time.perf_counter()
        try:
            worker.start()
            begin = time.perf_counter()  # a verdict's time is its own, not the interpreter's
            result: Outcome | Exception = worker.ask(*key)
        except Exception as error:
            result = error
        grader = grader_ref()
        if grader is None:
            break
        grader._settle(key, result, 1e3 * (time.perf_counter() - begin))
        del grader
    worker.kill()


def _stop(tasks: queue.SimpleQueue, workers: list["Worker"]) -> None:
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.retire()
