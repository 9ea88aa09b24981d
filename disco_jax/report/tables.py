"""What a run prints: before/after, histograms, configuration, sample rollouts, as plain text."""

import math
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from disco_jax.report.run import changes, overrides

_CODES = {"green": 32, "red": 31, "bold": 1, "dim": 2}


class Style(NamedTuple):
    """What the stream can show."""

    colour: bool = False
    unicode: bool = False

    @staticmethod
    def of(stream: TextIO) -> "Style":
        """Colour on terminals unless NO_COLOR is set; block characters if the encoding has them."""
        encoding = (getattr(stream, "encoding", None) or "ascii").lower()
        colour = stream.isatty() and not os.environ.get("NO_COLOR")
        return Style(colour, encoding.startswith("utf"))

    def paint(self, text: str, *looks: str) -> str:
        if not self.colour:
            return text
        return f"\x1b[{';'.join(str(_CODES[look]) for look in looks)}m{text}\x1b[0m"


PLAIN = Style()


def before_after(before: Mapping[str, Any], after: Mapping[str, Any], style: Style = PLAIN) -> str:
    """The table a run ends with.

    Args:
      before: eval row of the starting policy.
      after: eval row of the trained policy; empty for none.
    """
    heads = [f"step {row['step']:,}" if "step" in row else "" for row in (before, after)]
    lines = changes(dict(before), dict(after))
    cells = [("held-out questions", *heads, "change"), *(line[:4] for line in lines)]
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    looks = {True: ("green",), False: ("red",), None: ()}
    shown = []
    for (label, *numbers), good in zip(cells, (None, *(line.good for line in lines)), strict=True):
        numbers = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        look = looks[good] if shown else ("bold",)
        numbers[-1] = style.paint(numbers[-1], *look) if look else numbers[-1].rstrip()
        shown.append("  ".join([f"{label:<{widths[0]}}", *numbers]).rstrip())
    return "\n".join(shown)


def histogram(columns: Mapping[str, Sequence[float]], style: Style = PLAIN, width: int = 24) -> str:
    """Questions by success rate: one line per number of right samples, one bar per column.

    Args:
      columns: title -> counts; entry i of k + 1 is the number of questions with i of k right.
        All columns have the same length.
      width: characters of the longest bar.

    Raises:
      ValueError: columns of different lengths, or none.
    """
    lengths = {len(counts) for counts in columns.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"histogram: columns of lengths {sorted(lengths)}, should be one length")
    k = lengths.pop() - 1
    columns = {title: [_count(c) for c in counts] for title, counts in columns.items()}
    top = max(max(counts) for counts in columns.values()) or 1
    digits = max(len(f"{count:.0f}") for counts in columns.values() for count in counts)
    head = f"{'p(q)':<13}" + "  ".join(f"{title:<{width + digits + 1}}" for title in columns)
    lines = [style.paint(head.rstrip(), "bold")]
    for i in range(k + 1):
        share = f"{i / k:.2f}" if k else "-"
        label = f"{i:>3}/{k:<3} {share:>4} "
        bars = (f"{_bar(counts[i] / top, width, style.unicode)} {counts[i]:>{digits}.0f}"
                for counts in columns.values())  # fmt: skip
        lines.append((label + "  ".join(bars)).rstrip())
    return "\n".join(lines)


def configuration(
    config: Mapping[str, Any], base: Mapping[str, Any], style: Style = PLAIN, every: bool = False
) -> str:
    """The run's configuration against the defaults.

    Args:
      config, base: flat, dotted key -> value (`run.flatten`).
      every: list all keys and mark those that differ; otherwise only those that differ.
    """
    differing = overrides(config, base)
    keys = list(config) if every else list(differing)
    if not keys:
        return "configuration: all defaults"
    width = max(map(len, keys))
    lines = []
    for key in keys:
        line = f"{'*' if key in differing else ' '} {key:<{width}}  {_value(config[key])}"
        if key in differing:
            default = _value(differing[key][0]) if key in base else "none"
            line = style.paint(line, "bold") + style.paint(f"  (default {default})", "dim")
        lines.append(line)
    return "\n".join(lines)


def parameters(tree: Mapping[str, Any]) -> str:
    """Name, shape, dtype and size of every array of a nested dictionary, and the total."""
    rows, total = [], 0
    stack = [((str(k),), v) for k, v in reversed(tree.items())]
    while stack:
        path, leaf = stack.pop()
        if isinstance(leaf, Mapping):
            stack += [((*path, str(k)), v) for k, v in reversed(leaf.items())]
            continue
        size = math.prod(leaf.shape)
        total += size
        shape = " x ".join(map(str, leaf.shape)) or "scalar"
        rows.append(("/".join(path), shape, str(leaf.dtype), f"{size:,}"))
    rows.append(("total", "", "", f"{total:,}"))
    w = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(f"{a:<{w[0]}}  {b:<{w[1]}}  {c:<{w[2]}}  {d:>{w[3]}}" for a, b, c, d in rows)


def samples(
    rollouts: Iterable[Mapping[str, Any]], style: Style = PLAIN, count: int = 3, lines: int = 12
) -> str:
    """A few questions, each with one right and one wrong response as far as it has them.

    Args:
      rollouts: rows of rollouts.jsonl; the first `count` are shown.
      lines: lines shown of a response; its middle is left out, for the answer is at the end.
    """
    blocks = []
    for row, _ in zip(rollouts, range(count), strict=False):
        golds = ", ".join(map(printable, row["golds"]))
        right = [response for response in row["responses"] if response["reward"] >= 0.5]
        wrong = [response for response in row["responses"] if response["reward"] < 0.5]
        block = [
            style.paint(f"question {printable(row['question_id'])}", "bold")
            + f"  {len(right)} of {len(row['responses'])} right, answer {golds}",
            _indent(row["problem"], lines),
        ]
        for name, look, some in (("right", "green", right), ("wrong", "red", wrong)):
            if some:
                first = some[0]
                cut = "" if first["ended"] else ", cut off"
                head = f"  {name}: {first['tokens']} tokens{cut} ({printable(first['reason'])})"
                block += [style.paint(head, look), _indent(first["text"], lines)]
        blocks.append("\n".join(block))
    text = "\n\n".join(blocks)
    return text if style.unicode else text.encode("ascii", "replace").decode("ascii")


def printable(value: Any, newlines: bool = False) -> str:
    """The value as text that cannot steer a terminal.

    Control, format and surrogate characters (escape sequences, bidirectional overrides) become
    U+FFFD; line breaks and tabs become spaces unless `newlines`.
    """
    keep = "\n\t" if newlines else ""
    text = "".join(
        c if c in keep else " " if c in "\n\t\r" else "\ufffd" if _unsafe(c) else c
        for c in str(value)
    )
    return text


def _count(value: float) -> float:
    return value if math.isfinite(value) else 0


def _value(value: Any) -> str:
    return printable(value) or "''"


def _unsafe(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _indent(text: str, lines: int) -> str:
    """The text indented, at most about `lines` lines of 96 characters, without its middle."""
    room = lines * 96
    if len(text) > room:
        text = (
            f"{text[: room // 2]}\n[... {len(text) - room:,} characters ...]\n{text[-room // 2 :]}"
        )
    rows = printable(text.strip(), newlines=True).splitlines()
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"[... {len(rows) - 2 * half} lines ...]", *rows[-half:]]
    return "\n".join(f"    {row}" for row in rows)


def _bar(share: float, width: int, unicode: bool) -> str:
    """A bar of the share of `width`, padded; anything above nothing is seen."""
    if not unicode:
        return ("#" * max(round(share * width), share > 0)).ljust(width)
    eighths = max(round(share * width * 8), int(share > 0))
    whole, rest = divmod(eighths, 8)
    return ("\u2588" * whole + ("" if not rest else chr(0x2590 - rest))).ljust(width)
