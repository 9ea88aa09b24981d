"""One killable worker process: started when needed, asked one thing at a time, ended on time."""

import json
import os
import selectors
import subprocess
import sys
import threading
import time

from disco_jax.reward.verdict import Outcome

WATCH_S = 0.25  # between looks at a worker's memory, where the kernel does not bound it
PATIENCE = 2  # further periods for a worker that the machine keeps from running
IDLE_MIB = 64  # resident, of an idle worker
BOUNDING = "/proc/self/statm"  # where this is, a worker bounds its own memory; elsewhere we look
START_S = 60.0  # a fresh interpreter answers within this, or grading stops with an error
_START = (
    "import sys; sys.path[:] = {path!r}; from disco_jax.reward import worker; "
    "worker.main({policy!r}, {timeout_s!r}, {memory_mib!r})"
)


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


class _Grown(_Gone):
    """It was ended because it had grown beyond its bound."""


class _Late(Exception):
    """No answer before the deadline."""


class Worker:
    """One process, started when first needed and again after each death."""

    def __init__(self, policy: str, timeout_s: float, memory_mib: int):
        self._timeout_s = timeout_s
        self._memory_mib = memory_mib
        self._watched = not os.path.exists(BOUNDING)
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
            except _Gone as error:
                reason = "memory" if isinstance(error, _Grown) else "crash"
                if fresh:
                    break
        return Outcome(0, reason)

    def _ask(self, request: bytes) -> Outcome:
        self.start()
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
            reply = json.loads(self._read_line(self._timeout_s))
        except (OSError, _Gone, _Late, ValueError, AttributeError) as error:
            self.kill()
            raise error if isinstance(error, _Late | _Grown) else _Gone from None
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
        """Returns when there is output; raises `_Late`, or `_Grown` where memory runs over."""
        for _ in range(1 + PATIENCE):
            deadline = time.monotonic() + timeout_s
            while (left := deadline - time.monotonic()) > 0:
                if selector.select(min(left, WATCH_S) if self._watched else left):
                    return
                if self._watched and resident_mib(pid) > self._memory_mib + IDLE_MIB:
                    raise _Grown
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
