import json
import math
import struct
import subprocess
import sys

import pytest

from disco_jax.report import writers
from disco_jax.report.writers import MetricsWriter, RolloutWriter, read_metrics, read_rollouts


def write_steps(workdir, steps, resume_step=-1):
    writer = MetricsWriter(workdir, resume_step)
    for step in steps:
        writer.write(step, "train", {"reward/mean": step / 10})
    writer.close()


def write_rollout(writer, step, text="text", question_id="q"):
    responses = [{"text": text, "reward": 1.0, "reason": "equal", "tokens": 3, "ended": True}]
    writer.write(step, question_id=question_id, problem="p", golds=["1"], responses=responses)


def strict(line):
    """Parses JSON as the standard has it: NaN and Infinity are refused."""
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"not JSON: {name}"))


def events(workdir):
    """(step, tags or "start") of every event, file by file in the order they were opened."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    paths = list((workdir / "tensorboard").iterdir())
    for path in sorted(paths, key=lambda path: int(path.suffix[1:])):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            if event.HasField("session_log"):
                found.append((event.step, "start"))
            elif event.HasField("summary"):
                found.append((event.step, {v.tag: v.simple_value for v in event.summary.value}))
    return found


def test_importing_the_package_loads_no_heavy_library():
    code = (
        "import sys\n"
        "from disco_jax.report import html, panels, plots, progress, run, tables, writers\n"
        "heavy = {'matplotlib', 'jinja2', 'tensorboardX', 'tqdm', 'numpy', 'jax'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_rows_come_back_as_written(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(0, "eval", {"eval/pass1": 0.25, "eval/histogram": [1, 2, 3]})
    writer.write(1, "train", {"reward/mean": 0.5})
    writer.close()
    first, second = read_metrics(tmp_path)
    assert first.pop("wall_s") <= second.pop("wall_s")
    assert first == {
        "step": 0, "kind": "eval", "eval/pass1": 0.25, "eval/histogram": [1.0, 2.0, 3.0]
    }  # fmt: skip
    assert second == {"step": 1, "kind": "train", "reward/mean": 0.5}


def test_a_row_is_on_file_when_write_returns(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(1, "train", {"reward/mean": 0.5})
    assert [row["step"] for row in read_metrics(tmp_path)] == [1]
    assert events(tmp_path) == [(1, {"reward/mean": 0.5})]
    writer.close()


def test_numbers_that_are_not_finite_become_null(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(1, "train", {"a": math.nan, "b": math.inf, "c": [1.0, -math.inf]})
    writer.close()
    row = strict((tmp_path / "metrics.jsonl").read_text())
    assert (row["a"], row["b"], row["c"]) == (None, None, [1.0, None])
    (row,) = read_metrics(tmp_path)
    assert math.isnan(row["a"]) and math.isnan(row["c"][1])


@pytest.mark.parametrize("row", [{"a": "text"}, {"a": None}, {"a": ["x"]}, {"step": 1.0}])
def test_what_is_no_metric_is_refused_by_name(tmp_path, row):
    writer = MetricsWriter(tmp_path)
    with pytest.raises(ValueError, match=next(iter(row))):
        writer.write(1, "train", row)
    writer.close()
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("resume_step", range(-1, 6))
def test_resuming_drops_later_rows_only(tmp_path, resume_step):
    write_steps(tmp_path, range(5))
    write_steps(tmp_path, range(resume_step + 1, 5), resume_step)
    assert [row["step"] for row in read_metrics(tmp_path)] == list(range(5))


def test_a_file_cut_at_any_byte_resumes_without_loss_or_repetition(tmp_path):
    write_steps(tmp_path, range(4))
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = whole[:cut].count(b"\n")
        assert [row["step"] for row in read_metrics(tmp_path)] == list(range(kept))
        writers.JsonLines(path, resume_step=2).close()
        assert path.read_bytes() == b"".join(lines[: min(kept, 3)])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.jsonl", "tensorboard"]


def test_nothing_is_rewritten_where_nothing_has_to_go(tmp_path):
    write_steps(tmp_path, range(3))
    inode = (tmp_path / "metrics.jsonl").stat().st_ino
    write_steps(tmp_path, [3], resume_step=2)
    assert (tmp_path / "metrics.jsonl").stat().st_ino == inode


def test_time_of_work_continues_over_a_restart(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "wall_s": 1000.0}\n')
    write_steps(tmp_path, [2], resume_step=1)
    assert 1000 <= read_metrics(tmp_path)[1]["wall_s"] < 1100


def test_rows_of_other_spacing_are_understood(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"kind":"train","step":1}\n{"kind":"train","step":2}\n'
    )
    write_steps(tmp_path, [2], resume_step=1)
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2]


def test_has_knows_rows_of_this_process_and_of_earlier_ones(tmp_path):
    write_steps(tmp_path, range(3))
    writer = MetricsWriter(tmp_path, resume_step=1)
    assert writer.has(1, "train")
    assert not writer.has(2, "train") and not writer.has(1, "eval")
    writer.write(2, "train", {})
    assert writer.has(2, "train")
    writer.close()


def test_an_unreadable_line_before_the_last_is_skipped_with_a_warning(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "kind": "train"}\nnonsense\n{"step": 2, "kind": "train"}\n')
    with pytest.warns(UserWarning, match="metrics.jsonl:2"):
        assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2]


@pytest.mark.parametrize("line", ["[" * 100_000, "[1]", '{"step": "x"}', "\x00"])
def test_hostile_lines_are_no_rows(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{line}\n{{"step": 1, "kind": "train"}}\n')
    with pytest.warns(UserWarning, match="metrics.jsonl:1"):
        assert [row["step"] for row in read_metrics(tmp_path)] == [1]


def test_tensorboard_holds_the_scalars_and_purges_on_resume(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(1, "eval", {"eval/pass1": 0.5, "eval/histogram": [1, 2]})
    writer.write(2, "train", {"reward/mean": 0.25})
    writer.close()
    write_steps(tmp_path, [2], resume_step=1)
    write_steps(tmp_path, [], resume_step=2)
    assert events(tmp_path) == [
        (1, {"eval/pass1": 0.5}),
        (2, {"reward/mean": 0.25}),
        (2, "start"),  # TensorBoard forgets steps from 2 on in earlier files
        (2, {"reward/mean": pytest.approx(0.2)}),
        (3, "start"),
    ]


@pytest.mark.parametrize(
    "text", ["", "\ud800 lone", "</script>", "\x00\u2028\n\r", "x" * 1_000_000, "\U0001f600"]
)
def test_any_text_round_trips(tmp_path, text):
    writer = RolloutWriter(tmp_path)
    write_rollout(writer, 1, text)
    writer.close()
    (row,) = read_rollouts(tmp_path)
    assert row["responses"][0]["text"] == text
    assert (tmp_path / "rollouts.jsonl").read_bytes().isascii()
    assert strict((tmp_path / "rollouts.jsonl").read_text())["golds"] == ["1"]


def test_rollouts_resume_like_metrics(tmp_path):
    writer = RolloutWriter(tmp_path)
    for step in (1, 1, 2, 3):
        write_rollout(writer, step)
    writer.close()
    with (tmp_path / "rollouts.jsonl").open("a") as file:
        file.write('{"step": 3, "question_id": "to')
    RolloutWriter(tmp_path, resume_step=2).close()
    assert [row["step"] for row in read_rollouts(tmp_path)] == [1, 1, 2]
    assert [row["step"] for row in read_rollouts(tmp_path, {2})] == [2]
    assert writers.rollout_counts(tmp_path) == {1: 2, 2: 1}


def test_a_workdir_without_files_has_no_rows(tmp_path):
    assert read_metrics(tmp_path) == []
    assert list(read_rollouts(tmp_path)) == []
    assert writers.rollout_counts(tmp_path) == {}
