"""The line a person watches while a run trains, and the lines a log keeps of it."""

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from disco_jax.report.axes import scientific


class Progress:
    """Live progress: a bar on a terminal, one plain aligned line per step elsewhere.

    Takes the same rows as `MetricsWriter.write`; a figure that a row lacks is left out.

    Args:
      total: steps of the whole run.
      start: steps that were done before this process started.
      stream: where to write; standard error by default.
      quiet: writes nothing (processes other than 0 of a multi-host run).
    """

    def __init__(
        self, total: int, start: int = 0, stream: TextIO | None = None, quiet: bool = False
    ):
        self._total, self._start = total, start
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self._terminal = not quiet and self._stream.isatty()
        self._bar: Any = None
        self._pass1: float | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=21)  # (time, step): the rate's window

    @contextlib.contextmanager
    def phase(self, text: str) -> Iterator[None]:
        """Names a piece of start-up work and says how long it took: `text ... 6.2 s`."""
        if self._quiet:
            yield
            return
        begin = time.monotonic()
        # On a terminal the text appears at once; in a log, whole lines survive interleaving better.
        if self._terminal and self._bar is None:
            print(f"{text} ... ", end="", file=self._stream, flush=True)
            text_after = ""
        else:
            text_after = f"{text} ... "
        outcome = "failed after "
        try:
            yield
            outcome = ""
        finally:
            self.say(f"{text_after}{outcome}{time.monotonic() - begin:.1f} s")

    def say(self, text: str) -> None:
        """Prints a line, above the bar where there is one."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def write(self, step: int, kind: str, row: Mapping[str, Any]) -> None:
        """Shows a row: "train" rows move the bar, "eval" rows print held-out pass@1.

        Args:
          step: steps done so far.
          kind: "train" or "eval".
          row: metric name -> value, as given to `MetricsWriter.write`.
        """
        if kind == "eval":
            self._pass1 = row.get("eval/pass1", self._pass1)
            if not self._quiet:
                self.say(f"step {step:>{len(str(self._total))}}  held-out {_evaluation(row)}")
        elif not self._quiet:
            self._train(step, row)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _train(self, step: int, row: Mapping[str, Any]) -> None:
        self._recent.append((time.monotonic(), step))
        if self._terminal:
            if self._bar is None:
                self._bar = _bar(self._total, self._start, self._stream)
            self._bar.ncols = columns(self._stream)
            self._bar.set_description_str("  ".join(self._figures(row)), refresh=False)
            self._bar.update(step - self._bar.n)
        else:
            width = len(str(self._total))
            figures = "  ".join(self._figures(row))
            self.say(f"step {step:>{width}}/{self._total}  {figures}  eta {self._eta(step)}")

    def _figures(self, row: Mapping[str, Any]) -> list[str]:
        shown = []
        if "reward/mean" in row:
            shown.append(f"reward {row['reward/mean']:.3f}")
        if self._pass1 is not None:
            shown.append(f"pass@1 {100 * self._pass1:4.1f}%")
        if "kl/mean" in row:
            delta = f" of {scientific(row['kl/delta'])}" if "kl/delta" in row else ""
            shown.append(f"KL {scientific(row['kl/mean']):>7}{delta}")
        if "entropy/mean" in row:
            shown.append(f"entropy {row['entropy/mean']:.3f}")
        if "speed/tokens_per_s" in row:
            shown.append(f"{row['speed/tokens_per_s']:6,.0f} tok/s")
        return shown

    def _eta(self, step: int) -> str:
        """Remaining time at the pace of the last steps; the first, which compiles, sets no pace."""
        (then, first), (now, last) = self._recent[0], self._recent[-1]
        if last == first:
            return "--:--"
        return clock((now - then) / (last - first) * (self._total - step))


def clock(seconds: float) -> str:
    """Seconds as `m:ss` or `h:mm:ss`."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def _evaluation(row: Mapping[str, Any]) -> str:
    text = f"pass@1 {100 * row['eval/pass1']:.1f}%" if "eval/pass1" in row else "pass@1 unknown"
    if "eval/pass1_low" in row and "eval/pass1_high" in row:
        text += f" [{100 * row['eval/pass1_low']:.1f}, {100 * row['eval/pass1_high']:.1f}]"
    if "eval/length" in row:
        text += f"  mean length {row['eval/length']:.1f} tokens"
    return text


def columns(stream: TextIO) -> int:
    """Width of the terminal, 100 where it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 100
    except OSError:
        return 100


def _bar(total: int, start: int, stream: TextIO) -> Any:
    from tqdm import tqdm

    return tqdm(
        total=total,
        initial=start,
        file=stream,
        ncols=columns(stream),
        nrows=1000,  # a terminal of unknown height (0 rows, as in containers) would hide the bar
        mininterval=0.1,
        smoothing=0.1,
        # The bar comes last: it takes what room is left; narrow terminals cut from the right.
        bar_format="{n_fmt}/{total_fmt} eta {remaining}  {desc}  {rate_fmt} {bar}",
        unit=" steps",
    )
