"""JetStream's Driver over our engine, and grouped rollouts through it.

Three things of google-jetstream 0.2.2's own module are amended, at use and never on import (jax
itself is left alone):

  delete_pytree    calls `jax.tree_map`, which jax has removed. Here a prefix belongs to a group and
                   is let go by reference counting.
  JetThread        kills the process on any exception. Here the exception is raised where the
                   tokens are waited for.
  its root logger  is set to DEBUG on standard output. Here only warnings are printed.
"""

import functools
import itertools
import logging
import queue
from typing import Any

import jax
import numpy as np
from jetstream.core import orchestrator

from disco_jax.rollout.engine import Engine
from disco_jax.rollout.jetstream import Adapter, Response
from disco_jax.rollout.scheduler import OnFinish
from disco_jax.types import Rollouts

_RACE = "we must have some requests inserted"


class Thread(orchestrator.JetThread):
    """A worker whose exception stops its driver (ours), not the process."""

    def __init__(self, *, target: functools.partial, **rest: Any):
        super().__init__(target=functools.partial(_work, target), **rest)


def _work(target: functools.partial) -> None:
    driver = target.func.__self__
    while True:
        try:
            return target()
        except AssertionError as error:
            # The generate thread looks twice at the free slots and asserts in between that one is
            # taken; the last response may finish just then. Nothing is lost: all slots are free.
            if _RACE not in str(error):
                return _fail(driver, error)
        except Exception as error:
            return _fail(driver, error)


def _fail(driver: orchestrator.Driver, error: Exception) -> None:
    if not isinstance(driver, Driver):
        raise error  # and JetStream ends the process
    if driver.live:
        driver.failures.put(error)


class Driver(orchestrator.Driver):
    """JetStream's Driver over one adapter, with the amendments above.

    Attributes:
      failures: exceptions of the worker threads; the driver is of no use after one.
    """

    def __init__(self, adapter: Adapter):
        self.failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        self._adapter = adapter
        amend()
        params = [adapter.load_params()]
        super().__init__(
            prefill_engines=[adapter],
            generate_engines=[adapter],
            prefill_params=params,
            generate_params=params,
            interleaved_mode=True,  # one engine, on the same devices, does both
            jax_padding=False,
        )

    def place_request_on_prefill_queue(self, request: orchestrator.ActiveRequest) -> None:
        """Queues a request of a client. What JetStream would end the process for is refused here.

        Raises:
          ValueError: a prompt of no tokens, of too many, or of tokens that there are not.
        """
        engine, content = self._adapter.engine, request.prefill_content
        if isinstance(content, str):
            content = self._adapter.text.encode(content)
        longest, vocab = engine.config.prompt_tokens, engine.dims.vocab
        if not 1 <= len(content) <= longest or not all(0 <= i < vocab for i in content):
            raise ValueError(
                f"a prompt of {len(content)} tokens: 1 to {longest} fit, each in [0, {vocab})"
            )
        request.prefill_content = np.asarray(content, np.int32)
        most = engine.config.max_tokens
        limit = min(request.max_tokens, most) if request.max_tokens > 0 else most
        self._queue(request, Response(next(self._adapter.keys), limit))

    def submit(self, prompt_P: np.ndarray, response: Response, channel: Any) -> None:
        """Queues one response; its tokens go to `channel.add_result`, then `channel.close`."""
        request = orchestrator.ActiveRequest(
            max_tokens=response.limit,
            return_channel=channel,
            prefill_content=prompt_P,
            is_client_side_tokenization=True,
        )
        self._queue(request, response)

    def _queue(self, request: orchestrator.ActiveRequest, response: Response) -> None:
        request.max_tokens = response.limit
        request.history_path = "whole prompt"  # JetStream then puts no token in front of it
        self._adapter.expect(response)
        super().place_request_on_prefill_queue(request)


def amend() -> None:
    """Makes JetStream 0.2.2 run with this jax, and in a process of ours: see the top."""
    orchestrator.delete_pytree = lambda prefix: None
    orchestrator.JetThread = Thread
    if orchestrator.handler in orchestrator.root.handlers:
        orchestrator.root.removeHandler(orchestrator.handler)
        orchestrator.root.setLevel(logging.WARNING)


class _Channel:
    """Collects the tokens that the Driver returns for one response."""

    def __init__(self, response: Response, at: tuple[int, int], finished: queue.SimpleQueue):
        self.response, self.at, self._finished = response, at, finished
        self.returned: list[int] = []

    def add_result(self, samples: list) -> None:
        self.returned += samples[0].token_ids

    def close(self) -> None:
        self._finished.put(self)


def sample(
    engine: Engine,
    params: Any,
    prompt_QP: np.ndarray,
    prompt_length_Q: np.ndarray,
    key_QN: jax.Array,
    on_finish: OnFinish | None = None,
) -> Rollouts:
    """`scheduler.sample` through JetStream's Driver: the same arguments, the same tokens.

    Log-probabilities are the engine's own, since the Driver returns none.

    Raises:
      RuntimeError: a worker of the Driver failed, or it returned other tokens than were decoded.
    """
    config = engine.config
    Q, N = key_QN.shape
    T = config.max_tokens
    tokens_QNT = np.full((Q, N, T), config.pad_id, np.int32)
    logp_QNT = np.zeros((Q, N, T), np.float32)
    length_QN, ended_QN = np.zeros((Q, N), np.int32), np.zeros((Q, N), bool)
    key_data_QN = np.asarray(jax.random.key_data(key_QN))
    finished: queue.SimpleQueue[_Channel] = queue.SimpleQueue()
    driver = Driver(Adapter(engine, params, keys=iter(())))
    try:
        for q, n in itertools.product(range(Q), range(N)):
            prompt_P = np.asarray(prompt_QP[q, -prompt_length_Q[q] :], np.int32)
            response = Response(key_data_QN[q, n], T)
            driver.submit(prompt_P, response, _Channel(response, (q, n), finished))
        for _ in range(Q * N):
            channel = _next(finished, driver)
            found, length = channel.response, len(channel.response.tokens)
            if channel.returned != found.tokens[: length - found.ended]:
                raise RuntimeError(f"JetStream's Driver returned other tokens for {channel.at}")
            tokens_QNT[channel.at][:length] = found.tokens
            logp_QNT[channel.at][:length] = found.logp
            length_QN[channel.at], ended_QN[channel.at] = length, found.ended
            if on_finish is not None:
                on_finish(*channel.at, tokens_QNT[channel.at][:length])
    finally:
        driver.stop()
    return Rollouts(
        prompt_QP=np.asarray(prompt_QP, np.int32),
        prompt_length_Q=np.asarray(prompt_length_Q, np.int32),
        tokens_QNT=tokens_QNT,
        length_QN=length_QN,
        ended_QN=ended_QN,
        logp_QNT=logp_QNT,
    )


def _next(finished: queue.SimpleQueue, driver: Driver) -> _Channel:
    """The next finished response. Raises RuntimeError once a worker has failed."""
    while True:
        try:
            return finished.get(timeout=0.5)
        except queue.Empty:
            if not driver.failures.empty():
                error = driver.failures.get()
                raise RuntimeError(f"a worker of JetStream's Driver failed: {error}") from error
