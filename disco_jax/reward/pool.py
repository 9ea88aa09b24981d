"""Killable graders: each answer is judged in a process with a deadline and a memory bound.

A worker is a fresh interpreter started with `subprocess`: nothing of this process is copied (a
process that holds JAX must not fork) and `__main__` is not imported again. One thread per worker
hands it one answer at a time over a pipe and kills it when the deadline passes, so grading works
from any thread, under asyncio (`asyncio.wrap_future(grader.submit(...))`) and beside decoding.
"""

import collections
import json
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from disco_jax.reward import policies
from disco_jax.reward.verdict import Outcome, Verdict

JOIN_S = 5.0  # a thread notices the death of its worker at once
WATCH_S = 0.25  # between looks at a worker's memory, where the kernel does not bound it
PATIENCE = 2  # further periods for a worker that the machine keeps from running
IDLE_MIB = 64  # resident, of an idle worker
START_S = 60.0  # a fresh interpreter answers within this, or grading stops with an error
REMEMBERED = 20_000  # outcomes kept, so that a repeated answer is judged once
LONGEST_KEY = 8_000  # texts longer than this are judged anew

_UNBOUNDED = sys.platform == "darwin"  # its kernel does not enforce RLIMIT_AS

_START = (
    "import sys; sys.path[:] = {path!r}; from disco_jax.reward import worker; "
    "worker.main({policy!r}, {timeout_s!r}, {memory_mib!r})"
)


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
        self._workers: list[_Worker] = []
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
        worker = _Worker(*self._limits)
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
            if isinstance(result, Outcome) and len(key[0]) <= LONGEST_KEY:
                self._known[key] = result
                if len(self._known) > REMEMBERED:
                    self._known.popitem(last=False)
        for future in futures:
            if isinstance(result, Outcome):
                future.set_result(Verdict(*result, ms=ms))
            else:
                future.set_exception(result)


def _serve(grader_ref: weakref.ref, tasks: queue.SimpleQueue, worker: "_Worker") -> None:
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


def _stop(tasks: queue.SimpleQueue, workers: list["_Worker"]) -> None:
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.retire()


def starved(pid: int) -> bool:
    """Whether a process wants to run but had less than half a core since it started to.

    Without this, a busy machine turns right answers into timeouts, in bursts. Linux only;
    elsewhere the deadline is final.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            state, *fields = file.read().rpartition(")")[2].split()
        before = sum(map(int, fields[10:12]))
        time.sleep(0.2)
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()[1:]
        used = (sum(map(int, fields[10:12])) - before) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return False
    return state == "R" and used < 0.1


def resident_mib(pid: int) -> float:
    """Memory of a process in MiB, as `ps` says; 0 where it has ended."""
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(shown.stdout.strip() or 0) / 1024


class _Gone(Exception):
    """The worker's process ended without an answer."""


class _Late(Exception):
    """No answer before the deadline."""


class _Worker:
    """One process, started when first needed and again after each death."""

    def __init__(self, policy: str, timeout_s: float, memory_mib: int):
        self._timeout_s = timeout_s
        self._memory_mib = memory_mib
        self._command = [
            sys.executable,
            "-c",
            _START.format(path=sys.path, policy=policy, timeout_s=timeout_s, memory_mib=memory_mib),
        ]
        self._process: subprocess.Popen | None = None
        self._answered = 0
        self._retired = False
        self._lock = threading.Lock()  # between starting and retiring

    def ask(self, text: str, golds: tuple[str, ...]) -> Outcome:
        """Judges one answer.

        A death is the answer's fault only in a fresh process: in one that has judged others
        (and may have grown), the answer gets a second chance. A missed deadline is final.

        Raises:
          RuntimeError: a process does not start.
        """
        request = json.dumps([text, golds]).encode() + b"\n"
        for _ in range(2):
            fresh = self._answered == 0
            try:
                return self._ask(request)
            except _Late:
                return Outcome(0, "timeout")
            except _Gone:
                if fresh:
                    break
        return Outcome(0, "crash")

    def _ask(self, request: bytes) -> Outcome:
        self.start()
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            reply = json.loads(self._read_line(self._timeout_s))
        except (OSError, _Gone, _Late, ValueError, AttributeError) as error:
            self.kill()
            raise error if isinstance(error, _Late) else _Gone from None
        self._answered += 1
        if reply[1] == "memory":
            self.kill()  # its heap may be in pieces
        if reply[1].startswith("error: "):
            raise RuntimeError(f"reward policy: {reply[1][7:]}")
        return Outcome(*reply)

    def start(self) -> None:
        """Starts the process where there is none; raises RuntimeError where it does not start."""
        if self._process is not None:
            return
        with self._lock:
            if self._retired:
                raise _Gone
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # ctrl-C reaches this process, which ends the workers
            )
        self._answered = 0
        try:
            self._read_line(START_S)
        except (_Gone, _Late, AttributeError):
            code = self._process.poll() if self._process else None
            self.kill()
            if self._retired:
                raise _Gone from None
            raise RuntimeError(
                f"Grader: a worker did not start within {START_S:.0f} s (exit code {code}); its "
                f"error is on stderr above. It is started as {sys.executable} -c '...'"
            ) from None

    def _read_line(self, timeout_s: float) -> bytes:
        """One line of the worker's output; raises `_Late` or `_Gone`."""
        process = self._process
        handle = process.stdout.fileno()
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(handle, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                self._await(selector, process.pid, timeout_s)
                part = os.read(handle, 65536)
                if not part:
                    raise _Gone
                line += part
        return line

    def _await(self, selector: selectors.BaseSelector, pid: int, timeout_s: float) -> None:
        """Returns when there is output; raises `_Late`, or `_Gone` where memory runs over."""
        for _ in range(1 + PATIENCE):
            deadline = time.monotonic() + timeout_s
            while (left := deadline - time.monotonic()) > 0:
                if selector.select(min(left, WATCH_S) if _UNBOUNDED else left):
                    return
                if _UNBOUNDED and resident_mib(pid) > self._memory_mib + IDLE_MIB:
                    raise _Gone
            if not starved(pid):
                break
        raise _Late

    def kill(self) -> None:
        """Ends the process and waits for it."""
        process, self._process, self._answered = self._process, None, 0
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def retire(self) -> None:
        """From another thread: the process ends now and none is started again."""
        with self._lock:
            self._retired = True
            process = self._process
        if process is not None:
            process.kill()
