"""Workers that hang, grow, die or talk; order, threads, asyncio, interrupts."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from disco_jax.reward import Grader, grade, process

pytestmark = pytest.mark.multiprocess
HEALTH = [
    ("\\boxed{5}", "5"),
    ("\\boxed{6}", "5"),
    ("\\boxed{x+1}", "1+x"),
    ("\\boxed{x+1}", "x+2"),
]
HEALTHY = [1, 0, 1, 0]


def user(name):
    return f'function(path="grading_functions:{name}")'


def rewards(verdicts):
    return [v.reward for v in verdicts]


def test_results_come_in_order_of_submission():
    pairs = [(f"\\boxed{{x+{k}}}", f"{k % 7}+x") for k in range(100)]
    with Grader('math(think="none")', workers=3) as grader:
        assert rewards(grader.grade(pairs)) == [int(k == k % 7) for k in range(100)]


def test_a_repeated_answer_is_judged_once():
    with Grader(user("process_of"), workers=1) as grader:
        verdicts = grader.grade([("same", "1")] * 50)
        assert len({v.reward for v in verdicts}) == 1
        assert grader.grade([("same", "1")])[0].ms == 0.0


@pytest.mark.parametrize(
    ("function", "request_", "reason"),
    [
        ("sleep_on_request", "sleep", "timeout"),
        ("spin_on_request", "spin", "timeout"),
        ("die_on_request", "die", "crash"),
    ],
)
def test_a_lost_worker_is_replaced_and_costs_only_its_answer(function, request_, reason):
    with Grader(user(function), workers=1, timeout_s=2.0) as grader:
        before, lost, after = grader.grade([("a", "a"), (request_, "a"), ("b", "b")])
    assert (before.reward, lost.reward, after.reward) == (1, 0, 1)
    assert lost.reason == reason


@pytest.mark.skipif(sys.platform == "darwin", reason="bounded by looking, not by the kernel")
def test_memory_is_bounded():
    with Grader(user("grow_on_request"), workers=1, memory_mib=256) as grader:
        before, lost, after = grader.grade([("a", "a"), ("grow", "a"), ("b", "b")])
    assert (before.reward, lost, after.reward) == (1, (0, "memory", lost.ms), 1)


def test_memory_is_bounded_where_the_kernel_does_not():
    """As on macOS: from outside, by looking."""
    worker = process.Worker(user("fill_on_request"), timeout_s=60.0, memory_mib=4096)
    worker._watched, worker._memory_mib = True, 128
    try:
        answers = [worker.ask(text, ("a",)) for text in ("fill", "a")]
    finally:
        worker.kill()
    assert answers == [(0, "memory"), (1, answers[1].reason)]


def test_the_memory_of_a_process_can_be_looked_at():
    assert 1 < process.resident_mib(os.getpid()) < 100_000
    assert process.resident_mib(2**22 - 1) == 0


def test_what_a_policy_prints_does_not_disturb_the_replies():
    with Grader(user("print_much"), workers=1) as grader:
        assert rewards(grader.grade([("a", "b"), ("c", "d")])) == [1, 1]


def test_same_verdicts_from_the_main_thread_another_thread_and_asyncio():
    found = {}

    async def in_asyncio():
        futures = [grader.submit(*pair) for pair in HEALTH]
        found["asyncio"] = rewards(await asyncio.gather(*map(asyncio.wrap_future, futures)))

    with Grader('math(think="none")') as grader:
        found["main"] = rewards(grader.grade(HEALTH))
        thread = threading.Thread(target=lambda: found.update(thread=rewards(grader.grade(HEALTH))))
        thread.start()
        thread.join()
        asyncio.run(in_asyncio())
    assert found == {"main": HEALTHY, "thread": HEALTHY, "asyncio": HEALTHY}


def test_two_threads_share_a_grader():
    results = {}

    def work(name):
        pairs = [(f"\\boxed{{x+{k}}}", f"{k}+x") for k in range(40)]
        results[name] = sum(rewards(grader.grade(pairs)))

    with Grader('math(think="none")') as grader:
        threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {"a": 40, "b": 40}


def test_closing_ends_the_workers_and_answers_those_who_wait():
    grader = Grader(user("sleep_on_request"), workers=1, timeout_s=30)
    futures = [grader.submit("sleep", "a"), grader.submit("a", "a")]
    while not grader._workers or grader._workers[0]._process is None:
        time.sleep(0.01)
    worker = grader._workers[0]._process
    grader.close()
    for future in futures:
        with pytest.raises(RuntimeError, match="closed before"):
            future.result(timeout=5)
    assert worker.poll() is not None
    with pytest.raises(RuntimeError, match="after close"):
        grader.submit("b", "b")


def test_starting_is_cheap_and_needs_no_process_for_plain_numbers():
    with Grader('math(think="none")') as grader:
        assert rewards(grader.grade([("\\boxed{5}", 5), ("\\boxed{0.5}", "1/2")])) == [1, 1]
        assert grader._workers == []


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs two processes on one core")
def test_a_worker_that_wants_to_run_and_cannot_is_starved():
    """One that idles in its answer is not; one that the machine keeps from running is."""
    core = {min(os.sched_getaffinity(0))}
    spin = "while True: pass"
    code = {
        "sleeper": "import time; time.sleep(60)",
        "hog": spin,
        "starved": f"import os\nos.setpriority(os.PRIO_PROCESS, 0, 19)\n{spin}",
    }
    processes = {k: subprocess.Popen([sys.executable, "-c", text]) for k, text in code.items()}
    try:
        for name in ("hog", "starved"):
            os.sched_setaffinity(processes[name].pid, core)
        while os.getpriority(os.PRIO_PROCESS, processes["starved"].pid) < 19:
            time.sleep(0.05)
        assert process.starved(processes["starved"].pid)
        assert not process.starved(processes["sleeper"].pid)
        assert not process.starved(2**22 - 1)
    finally:
        for started in processes.values():
            started.kill()
            started.wait()


SCRIPT = """
import sys, time
sys.path[:0] = {path!r}
from disco_jax.reward import Grader
with Grader('function(path="grading_functions:sleep_on_request")', timeout_s=100) as grader:
    grader.grade([("a", "a")])
    future = grader.submit({request!r}, "a")
    print(grader._workers[0]._process.pid, flush=True)
    future.result()
    time.sleep(100)
"""


@pytest.mark.parametrize(
    ("how", "request_"),
    [
        (signal.SIGINT, "sleep"),
        (signal.SIGINT, "a"),
        (signal.SIGTERM, "sleep"),
        (signal.SIGTERM, "a"),
        (signal.SIGKILL, "sleep"),
    ],
)
def test_no_worker_outlives_the_run(how, request_):
    """Nor its run's last answer: busy or idle, it ends with the process that started it."""
    script = SCRIPT.format(path=[os.path.dirname(__file__)], request=request_)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        worker = int(run.stdout.readline())
        run.send_signal(how)
        assert run.wait(timeout=60) != 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the worker is still there")


def test_bounds_must_be_positive():
    with pytest.raises(ValueError, match="workers=0"):
        Grader(workers=0)
    with pytest.raises(ValueError, match="timeout_s=-1"):
        Grader(timeout_s=-1)
    with pytest.raises(ValueError, match="memory_mib=1 "):
        Grader(memory_mib=1)


def test_grade_in_one_line():
    assert grade("w</think>\\boxed{x+1}", "1+x").reward == 1
    assert grade("\\boxed{x+1}", ["x", "1+x"], 'math(think="none")').reward == 1
