"""Scalars as TensorBoard reads them: the one place that knows its event files."""

import pathlib
import time
from collections.abc import Mapping
from typing import Any


class Events:
    """TensorBoard scalars, written in the calling thread.

    The library's usual writer hands events to a thread through a multiprocessing queue: what is
    in the queue is lost when the process is killed, and a forking pool inherits its locks.
    """

    def __init__(self, folder: pathlib.Path, first_step: int):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        self._event, self._summary = event_pb2, summary_pb2
        folder.mkdir(parents=True, exist_ok=True)
        earlier = len(list(folder.glob("events.*")))
        # File names hold seconds only: the count keeps a quick restart from overwriting a file.
        self._writer = EventsWriter(str(folder / "events"), f".{earlier}")
        if earlier:  # TensorBoard drops what earlier files say about this step and later ones
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(event_pb2.Event(session_log=start), first_step)

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        value = self._summary.Summary.Value
        values = [value(tag=name, simple_value=number) for name, number in scalars.items()]
        self._write(self._event.Event(summary=self._summary.Summary(value=values)), step)

    def _write(self, event: Any, step: int) -> None:
        event.step, event.wall_time = int(step), time.time()
        self._writer.write_event(event)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
