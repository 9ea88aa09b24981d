import math
import subprocess
import sys

import pytest

from disco_jax.report import axes, panels, plots, run
from disco_jax.report.writers import MetricsWriter


def titles(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def found(figure, title):
    return figure.axes[titles(figure).index(title)]


def drawn(ax):
    """Label-free: the (x, y) data of every line in the axes."""
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines]


def test_curves_draw_what_is_on_file(make_run):
    figure = plots.curves(run.load(make_run(steps=4)))
    assert titles(figure) == [panel.title for panel in panels.PANELS]
    (reward,) = drawn(found(figure, "Training reward"))
    assert reward == ([1, 2, 3, 4], pytest.approx([0.31, 0.32, 0.33, 0.34]))
    assert drawn(found(figure, "Held-out pass@1")) == [([0, 4], [0.25, 0.75])]


def test_the_bound_is_drawn_into_the_kl_on_a_log_scale(demo):
    ax = found(plots.curves(run.load(demo)), "KL to the old policy")
    assert ax.get_yscale() == "log"
    assert [0.0001, 0.0001] in [y for _, y in drawn(ax)]
    assert "\u03b4 = 1e-4" in [text.get_text() for text in ax.texts]
    low, high = ax.get_ylim()
    assert low < 8e-5 < 1e-4 < high


def test_a_method_without_a_bound_has_none_drawn(make_run, tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(1, "train", {"kl/mean": 3e-4})
    writer.close()
    ax = found(plots.curves(run.load(tmp_path)), "KL to the old policy")
    assert len(ax.texts) == 0
    assert run.load(tmp_path).delta is None


def test_a_negative_kl_is_marked_not_hidden(make_run):
    ax = found(plots.curves(run.load(make_run(steps=1))), "KL to the old policy")
    assert ([], []) in drawn(ax)
    workdir = make_run("other", steps=2)
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "kind": "train", "kl/mean": -1e-6}\n')
    ax = found(plots.curves(run.load(workdir)), "KL to the old policy")
    assert [3] in [x for x, _ in drawn(ax)]


@pytest.mark.parametrize("row", [{}, {"reward/mean": math.nan}, {"odd $\\frac{": 1.0}])
def test_missing_metrics_break_nothing(tmp_path, row):
    writer = MetricsWriter(tmp_path)
    writer.write(1, "train", row)
    writer.close()
    assert plots.save_curves(tmp_path).stat().st_size > 0
    plots.compare([tmp_path, tmp_path])


def test_a_long_run_gets_a_running_mean(make_run):
    lines = drawn(found(plots.curves(run.load(make_run(steps=100))), "Training reward"))
    assert [len(x) for x, _ in lines] == [100, 100]


def test_running_mean():
    values = [1.0, 2.0, math.nan, 4.0, 9.0]
    assert panels.running_mean(values, 1) == [1.5, 1.5, 3.0, 6.5, 6.5]
    assert math.isnan(panels.running_mean([math.nan], 3)[0])


@pytest.mark.parametrize(
    "value, text", [(1e-4, "1e-4"), (1.5e-4, "1.5e-4"), (0.0, "0e0"), (-2e3, "-2e3")]
)
def test_scientific(value, text):
    assert axes.scientific(value) == text


@pytest.mark.parametrize(
    "value, text", [(0, "0"), (0.1 + 0.2, "0.3"), (3200, "3,200"), (9.5e-5, "9.5e-5"), (2e6, "2e6")]
)
def test_axis_labels(value, text):
    assert axes.plain(value) == text


def test_runs_are_compared_in_the_same_axes(make_run):
    workdirs = [make_run("a"), make_run("b", steps=9)]
    figure = plots.compare(workdirs)
    assert titles(figure) == [metric.title for metric in panels.COMPARED]
    curves = drawn(found(figure, "Training reward"))
    assert [x[-1] for x, _ in curves] == [6, 9]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    mixed = drawn(found(figure, "Questions with mixed outcomes"))[0][1]
    assert mixed[0] == pytest.approx(1 - 0.02 - 0.29)


def test_runs_of_one_name_are_told_apart(make_run):
    runs = [run.load(make_run(f"{parent}/demo")) for parent in ("a", "b")]
    names = plots.labels([*runs, run.load(make_run("other"))])
    assert names[2] == "other" and names[0].endswith("a/demo") and names[1].endswith("b/demo")


@pytest.mark.parametrize("name", ["<b>&amp;$x^{$ \u4e2d\u6587", "_hidden"])
def test_names_are_text_not_mathematics(make_run, name):
    workdir = make_run(name)
    plots.save_curves(workdir)
    figure = plots.compare([workdir, make_run("other")])
    assert len(figure.legends[0].get_texts()) == 2
    assert "svg" in plots.svg(figure)


def test_svg_takes_its_colours_from_the_page(demo):
    demo = run.load(demo)
    for panel in panels.panels(demo):
        plot = plots.plot(panel.title, lambda ax, panel=panel: panel.draw(ax, demo))
        assert plot.svg.startswith("<svg") and "var(--muted)" in plot.svg
        assert not [colour for colour in axes.PALETTE.values() if colour in plot.svg]
        assert "<text" in plot.svg and "<metadata" not in plot.svg
        again = plots.plot(panel.title, lambda ax, panel=panel: panel.draw(ax, demo))
        assert again.svg == plot.svg


def test_palette_colours_differ_so_that_they_can_be_replaced():
    colours = [*axes.PALETTE.values(), *axes.RUNS]
    assert len(set(colours)) == len(colours)


def test_plots_leave_pyplot_alone(make_run):
    code = (
        "import sys\n"
        "from disco_jax.report import plots\n"
        "plots.save_curves(sys.argv[1])\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    workdir = make_run()
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(workdir)], check=True)
    assert (workdir / "curves.png").read_bytes().startswith(b"\x89PNG")
