"""Counts compilations: in the steady state of a run there must be none."""

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class Compilations:
    """Counts XLA compilations of this process from its creation on."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_s: float, **_: object) -> None:
        self.count += event == _EVENT
