"""A policy behind JetStream's own gRPC server."""

from collections.abc import Iterator
from typing import Any

import grpc
import jax
import numpy as np
from jetstream.core import server_lib

from disco_jax.rollout.engine import Engine
from disco_jax.rollout.jetstream import Adapter, Text
from disco_jax.rollout.jetstream_driver import Driver

_LEAST_THREADS = 64


class Server:
    """Serves from its creation on, to this machine only: the protocol has no authentication.

    The n-th request is given the n-th key of `seed`, so that the same requests in the same order
    get the same responses. At most `max_tokens` of a request are made, and never more than the
    engine's; text requests are put into the model's chat template, tokens are taken as they are.
    """

    def __init__(self, engine: Engine, params: Any, text: Text, seed: int, port: int):
        """
        Args:
          params: from `engine.load_params`.
          text: from and to tokens.
        """
        self._driver = Driver(Adapter(engine, params, keys(seed), text))
        threads = max(engine.config.slots, _LEAST_THREADS)
        self._server = server_lib.JetStreamServer(
            self._driver, threads, port, grpc.local_server_credentials()
        )
        self._server.start()

    def failure(self) -> Exception | None:
        """What ended a worker of the driver, if anything did: nothing is answered any more."""
        return None if self._driver.failures.empty() else self._driver.failures.get()

    def stop(self) -> None:
        """Ends the workers, and the connections of clients after at most ten seconds."""
        self._server.stop()


def keys(seed: int) -> Iterator[np.ndarray]:
    """Raw data of the keys of request 0, 1, 2, ..."""
    key, number = jax.random.key(seed), 0
    while True:
        yield np.asarray(jax.random.key_data(jax.random.fold_in(key, number)))
        number += 1
