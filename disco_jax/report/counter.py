"""How far a known amount of work is: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from disco_jax.report.progress import clock, columns


class Counter:
    """Call it with (done, total) after every piece; shows the pace and the time left.

    The pace is that of this process: what was done before it started does not count.

    Args:
      text: what is being done.
      unit: what is counted, in the plural.
      stream: a terminal gets a bar, other streams a line; standard error by default.
      say: takes the lines instead of the stream, and there is no bar.
      every_s: seconds between two lines.
    """

    def __init__(
        self,
        text: str,
        unit: str = "responses",
        stream: TextIO | None = None,
        say: Callable[[str], None] | None = None,
        every_s: float = 10.0,
    ):
        self._text, self._unit, self._every_s = text, unit, every_s
        self._stream = sys.stderr if stream is None else stream
        self._say = say
        self._bar: Any = None
        self._terminal = say is None and self._stream.isatty()
        self._begin = self._last = time.monotonic()
        self._first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._first is None:
            self._first = done - 1
            if self._terminal:
                self._bar = _bar(self._text, self._unit, self._first, total, self._stream)
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        elif now - self._last >= self._every_s or (done == total and self._say is None):
            self._last = now
            pace = (done - self._first) / max(now - self._begin, 1e-9)
            line = (
                f"{self._text}  {done:,}/{total:,} {self._unit}  {pace:,.1f}/s  "
                f"eta {clock((total - done) / pace)}"
            )
            if self._say is None:
                print(line, file=self._stream, flush=True)
            else:
                self._say(line)

    def __enter__(self) -> "Counter":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def _bar(text: str, unit: str, first: int, total: int, stream: TextIO) -> Any:
    from tqdm import tqdm

    return tqdm(
        desc=text,
        total=total,
        initial=first,
        file=stream,
        ncols=columns(stream),
        nrows=1000,  # a terminal of unknown height would hide the bar
        smoothing=0,  # responses end in bursts: the mean pace tells more than the last one
        bar_format="{desc}  {n_fmt}/{total_fmt}{unit}  eta {remaining}  {rate_fmt} {bar}",
        unit=f" {unit}",
    )
