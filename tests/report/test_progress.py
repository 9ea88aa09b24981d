import io
import itertools

import pytest

from disco_jax.report import progress
from disco_jax.report.progress import Progress, clock

TRAIN = {
    "reward/mean": 0.4125,
    "kl/mean": 8.12e-5,
    "kl/delta": 1.5e-4,
    "entropy/mean": 0.71,
    "speed/tokens_per_s": 3204.2,
}

EVAL = {"eval/pass1": 0.312, "eval/pass1_low": 0.29, "eval/pass1_high": 0.33}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def ticking(monkeypatch):
    """A clock that moves by two seconds each time it is read."""
    ticks = itertools.count(0, 2)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(ticks))


def test_a_log_gets_one_plain_line_per_step(ticking):
    stream = io.StringIO()
    with Progress(total=100, stream=stream) as live:
        live.write(
            0, "eval", {"eval/pass1": 0.312, "eval/pass1_low": 0.29, "eval/pass1_high": 0.33}
        )
        for step in range(1, 4):
            live.write(step, "train", TRAIN)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "step   0  held-out pass@1 31.2% [29.0, 33.0]"
    assert lines[1] == (
        "step   1/100  reward 0.412  pass@1 31.2%  KL  8.1e-5 of 1.5e-4  entropy 0.710   "
        "3,204 tok/s  eta --:--"
    )
    assert lines[3].endswith("eta 3:14")  # 97 steps of two seconds
    assert len(lines) == 4 and "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_figures_align_over_steps():
    stream = io.StringIO()
    live = Progress(total=1000, stream=stream)
    live.write(5, "train", TRAIN | {"kl/mean": -1.2e-6, "speed/tokens_per_s": 12.0})
    live.write(999, "train", TRAIN)
    first, second = stream.getvalue().splitlines()
    assert first.index("entropy") == second.index("entropy")
    assert first.index("tok/s") == second.index("tok/s")


def test_a_terminal_gets_a_bar_with_the_same_figures():
    stream = Terminal()
    with Progress(total=10, start=3, stream=stream) as live:
        live.write(4, "train", TRAIN)
        live.write(4, "eval", {"eval/pass1": 0.5})
        live.write(5, "train", TRAIN)
    text = stream.getvalue()
    assert "\r" in text and "5/10" in text
    assert "step  4  held-out pass@1 50.0%" in text
    last = text.split("\r")[-1]
    for figure in ("reward 0.412", "pass@1 50.0%", "KL  8.1e-5 of 1.5e-4", "3,204 tok/s"):
        assert figure in last


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
@pytest.mark.parametrize("row", [{}, {"kl/mean": float("nan")}, {"reward/mean": 1.0}])
def test_missing_figures_are_left_out(stream, row):
    out = stream()
    with Progress(total=3, stream=out) as live:
        live.write(1, "train", row)
        live.write(1, "eval", {})
    assert ("reward" in out.getvalue()) == ("reward/mean" in row)
    assert "of" not in out.getvalue().replace("out of", "")  # no bound without kl/delta


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_phases_say_how_long_they_took(ticking, stream):
    out = stream()
    with Progress(total=1, stream=out).phase("compiling the sampler"):
        pass
    assert out.getvalue() == "compiling the sampler ... 2.0 s\n"


def test_a_phase_that_fails_says_so_and_raises(ticking):
    out = io.StringIO()
    with pytest.raises(RuntimeError), Progress(total=1, stream=out).phase("loading"):
        raise RuntimeError
    assert out.getvalue() == "loading ... failed after 2.0 s\n"


def test_quiet_writes_nothing():
    out = Terminal()
    with Progress(total=2, stream=out, quiet=True) as live:
        with live.phase("compiling"):
            live.say("text")
        live.write(1, "train", TRAIN)
        live.write(1, "eval", {"eval/pass1": 0.5})
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    "seconds, text", [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (7384, "2:03:04"), (-3, "0:00")]
)
def test_clock(seconds, text):
    assert clock(seconds) == text
