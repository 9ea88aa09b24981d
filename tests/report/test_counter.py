"""Progress of a known amount of work: lines in a log, a bar on a terminal."""

import io
import re

from disco_jax.report.counter import Counter


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def fileno(self):
        raise OSError("a terminal of unknown width")


def test_a_log_gets_whole_lines_with_pace_and_time_left():
    stream = io.StringIO()
    with Counter("aime24", stream=stream, every_s=0) as count:
        for done in range(3, 6):
            count(done, 5)
    lines = stream.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["3/5", "4/5", "5/5"]
    assert all(re.search(r"responses  [\d,.]+/s  eta \d+:\d\d$", line) for line in lines)


def test_a_log_is_not_flooded_and_has_the_end():
    stream = io.StringIO()
    with Counter("aime24", stream=stream, every_s=3600) as count:
        for done in range(1, 1001):
            count(done, 1000)
    (line,) = stream.getvalue().splitlines()
    assert "1,000/1,000" in line and line.endswith("eta 0:00")


def test_a_short_piece_of_a_larger_report_says_nothing():
    said = []
    with Counter("heldout", say=said.append, every_s=3600) as count:
        count(1, 1)
    assert said == []


def test_a_terminal_gets_a_bar():
    stream = Terminal()
    with Counter("aime24", stream=stream) as count:
        for done in range(3, 6):
            count(done, 5)
    assert "aime24" in stream.getvalue() and "5/5 responses" in stream.getvalue()
