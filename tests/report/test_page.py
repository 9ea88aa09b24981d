import base64
import hashlib
import html.parser
import json
import re

import pytest

from disco_jax.report import html as page
from disco_jax.report import run
from disco_jax.report.__main__ import main
from disco_jax.report.writers import MetricsWriter, RolloutWriter

HOSTILE = (
    "</script><script>document.title='x'</script><img src=x onerror=alert(1)><!--<script>"
    "\ud800\u202e\u2028\x00 {{ 7*7 }} {% raw %}"
)


class Page(html.parser.HTMLParser):
    """Tags, attributes and the contents of scripts of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.text = [], [], [], []
        self._script = None
        self.body = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.body |= tag == "body"
        if tag == "script":
            self._script = dict(attrs).get("type", "code")
            self.scripts.append([self._script, ""])

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script:
            self.scripts[-1][1] += data
        elif self.body:
            self.text.append(data)

    def data(self):
        """The rollouts; the other data blocks hold the numbers of the plots."""
        blocks = [json.loads(text) for kind, text in self.scripts if kind != "code"]
        (rows,) = [block for block in blocks if isinstance(block, list)]
        return rows

    def readouts(self):
        blocks = [json.loads(text) for kind, text in self.scripts if kind != "code"]
        return [block for block in blocks if isinstance(block, dict)]


def read(workdir):
    return Page((workdir / "report.html").read_text(encoding="utf-8"))


def rendered(workdir):
    page.write_report(workdir)
    return read(workdir)


def test_a_run_becomes_a_page(demo):
    result = read(demo)
    text = " ".join(" ".join(result.text).split())
    assert "demo finished" in text
    assert "25.0 % \u2192 75.0 % +50.0 points" in text
    assert "95 % interval [23.0, 27.0] \u2192 [73.0, 77.0]" in text
    assert "8e-5" in text and "bound \u03b4 = 1e-4" in text and "6 of 6" in text
    assert "Training reward" in text and "optim/lr" in text
    assert result.tags.count("svg") >= 7


def test_an_unfinished_run_says_so(make_run):
    text = "".join(rendered(make_run(finished=False, config={"steps": 40})).text)
    assert "unfinished, step 6 of 40" in text


def test_the_page_needs_no_network(demo):
    result = read(demo)
    for tag, name, value in result.attributes:
        if name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            assert value.startswith(("#", "data:")), (tag, name, value)
        assert not name.startswith("on"), f"{tag} has a handler {name}"
    source = (demo / "report.html").read_text(encoding="utf-8")
    assert not re.findall(r"@import|url\((?![\"']?#)", source)
    assert set(result.tags).isdisjoint({"iframe", "object", "embed", "base"})


def test_the_policy_admits_the_pages_own_script_only(demo):
    result = read(demo)
    (code,) = [text for kind, text in result.scripts if kind == "code"]
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = next(value for _, name, value in result.attributes if "default-src" in value)
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy
    assert "textContent" in code
    assert not re.findall(r"innerHTML|insertAdjacent|document\.write|eval\(|outerHTML", code)


def test_numbers_can_be_read_off_the_curves(demo):
    readouts = read(demo).readouts()
    points = [series["points"] for block in readouts for series in block["series"]]
    assert [[i, round(0.3 + i / 100, 4)] for i in range(1, 7)] in points
    assert [[0, 0.25], [6, 0.75]] in points
    for block in readouts:
        assert block["limits"][0] <= 1 and block["limits"][1] >= 6


def test_hostile_texts_stay_texts(tmp_path, demo):
    plain = read(demo)
    workdir = tmp_path / "<img src=x onerror=alert(1)>"
    metrics, rollouts = MetricsWriter(workdir), RolloutWriter(workdir)
    metrics.write(0, "eval", {"eval/pass1": 0.5, "eval/level/<img src=x>": 0.5})
    metrics.write(1, "train", {"<img src=x>": 1.0, "reward/mean": float("nan")})
    rollouts.write(
        1,
        question_id=HOSTILE,
        problem=HOSTILE,
        golds=[HOSTILE],
        level=HOSTILE,
        responses=[{"text": HOSTILE, "reward": 1.0, "reason": HOSTILE, "tokens": 1, "ended": True}],
    )
    metrics.close()
    rollouts.close()
    for name in ("config.json", "config_base.json"):
        (workdir / name).write_text(json.dumps({"a": {HOSTILE: HOSTILE}, "model": HOSTILE + name}))
    result = rendered(workdir)
    assert "img" not in result.tags
    assert [kind for kind, _ in result.scripts].count("code") == 1
    assert result.scripts[-1] == plain.scripts[-1]
    (row,) = result.data()
    for shown in (row["problem"], row["responses"][0]["text"]):
        assert shown.startswith("</script><script>document.title='x'</script><img src=x")
        assert shown.endswith("{{ 7*7 }} {% raw %}")
        assert not set(shown) & set("\ud800\u202e\x00")


def test_two_runs_with_hostile_names_compare(tmp_path, make_run):
    names = ["<script>alert(1)</script>".replace("/", "|"), "$x^{$"]
    out = page.write_comparison([make_run(name) for name in names], tmp_path / "compare.html")
    result = Page(out.read_text(encoding="utf-8"))
    assert [kind for kind, _ in result.scripts].count("code") == 1
    assert "<script>alert(1)<|script>" in "".join(result.text)


def test_comparison_lists_runs_and_what_differs(tmp_path, make_run):
    config = {"steps": 6, "objective": {"method": "grpo", "tau": 10.0}}
    workdirs = [make_run("a"), make_run("b", config=config)]
    out = page.write_comparison(workdirs, tmp_path / "compare.html")
    text = " ".join(" ".join(Page(out.read_text(encoding="utf-8")).text).split())
    assert text.count("+50.0 points") == 2
    assert "objective.method disco_logl grpo" in text
    first_table = text[text.index("Configuration") : text.index("all 5 keys")]
    assert "objective.tau" not in first_table and "seed" in first_table


def test_overrides_are_marked(make_run):
    result = rendered(make_run(config={"seed": 0, "steps": 6, "objective": {"method": "grpo"}}))
    changed = [value for tag, name, value in result.attributes if (tag, name) == ("tr", "class")]
    assert changed.count("changed") == 4  # steps and method, in the short and in the full table


def test_rollouts_are_sampled_over_the_run(make_run):
    workdir = make_run(steps=30)
    rows = page.rollout_sample(run.load(workdir))
    steps = sorted({row["step"] for row in rows})
    assert steps[0] == 1 and steps[-1] == 30 and len(steps) == page.STEPS
    assert [row["step"] for row in rows] == sorted((row["step"] for row in rows), reverse=True)
    assert {row["id"] for row in rows} == {"q0", "q1", "q2"}


def test_the_page_stays_small_whatever_the_responses(tmp_path):
    metrics, rollouts = MetricsWriter(tmp_path), RolloutWriter(tmp_path)
    metrics.write(1, "train", {"reward/mean": 0.5})
    answer = {"reward": 1.0, "reason": "", "tokens": 9, "ended": True}
    for text in ("<" * 1_000_000, "\u4e2d" * 1_000_000):
        responses = [answer | {"text": text + "\\boxed{4}"} for _ in range(4)]
        rollouts.write(1, question_id="q", problem=text, golds=["4"], responses=responses)
    metrics.close()
    rollouts.close()
    path = page.write_report(tmp_path)
    assert path.stat().st_size < 8 * page.CHARACTERS
    for row in Page(path.read_text(encoding="utf-8")).data():
        assert all(r["text"].endswith("\\boxed{4}") for r in row["responses"])


def test_odd_rollout_rows_break_nothing(make_run):
    workdir = make_run(steps=1)
    with (workdir / "rollouts.jsonl").open("a") as file:
        file.write('{"step": 1}\n{"step": 1, "responses": [3, {"reward": null}], "golds": null}\n')
    rows = rendered(workdir).data()
    assert [len(row["responses"]) for row in rows] == [2, 2, 2, 0, 1]


@pytest.mark.parametrize("limit", [10, 11, 1000])
def test_clip_keeps_both_ends(limit):
    text = "".join(map(str, range(1000)))
    shown = page.clip(text, limit)
    assert shown.startswith(text[: limit // 2]) and shown.endswith(text[-limit // 2 :])
    assert f"{len(text) - limit:,} characters" in shown
    assert page.clip("short", 10) == "short"


def test_the_command_renders_one_run(make_run, capsys):
    workdir = make_run()
    assert main([str(workdir)]) == 0
    shown = capsys.readouterr().out.split()
    assert shown == [str(workdir / "report.html"), str(workdir / "curves.png")]


def test_the_command_compares_several(make_run, tmp_path, capsys):
    out = tmp_path / "both.html"
    assert main([str(make_run("a")), str(make_run("b")), "--out", str(out)]) == 0
    assert capsys.readouterr().out.split() == [str(out)] and out.exists()


def folder(path):
    path.mkdir()


def empty_metrics(path):
    path.mkdir()
    (path / "metrics.jsonl").touch()


def bad_config(path):
    with MetricsWriter(path) as writer:
        writer.write(1, "train", {"reward/mean": 0.5})
    (path / "config.json").write_text("{")


@pytest.mark.parametrize(
    "prepare, message",
    [
        (lambda path: None, "no such folder"),
        (folder, "metrics.jsonl does not exist"),
        (empty_metrics, "metrics.jsonl is empty"),
        (bad_config, "config.json: not JSON"),
    ],
)
def test_the_command_refuses_in_one_line(tmp_path, capsys, prepare, message):
    prepare(tmp_path / "run")
    assert main([str(tmp_path / "run")]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert message in captured.err and str(tmp_path / "run") in captured.err


def test_the_command_reports_skipped_lines(tmp_path, capsys):
    row = '{"step": 1, "kind": "train", "reward/mean": 0.5}\n'
    (tmp_path / "metrics.jsonl").write_text(row + "nonsense\n" + row)
    assert main([str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "metrics.jsonl:2" in captured.err
