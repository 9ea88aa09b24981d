"""Fig. 1a of the paper: how much a question counts, by the share p of its responses that are right.

python experiments/fig1a/plot.py [fig1a.png]

Draws the question weights of every row of METHODS, from the functions that train with them.
"""

import pathlib
import sys

import jax.numpy as jnp
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from disco_jax import calls
from disco_jax.objective.methods import METHODS
from disco_jax.objective.weights import WEIGHTS

LABELS = {"std": "√p(1−p)", "var": "p(1−p)", "one": "1"}
STYLES = {"std": "-", "var": "--", "one": "-."}


def draw(path: pathlib.Path) -> None:
    """Writes the figure as a PNG."""
    p = jnp.linspace(0, 1, 501)
    figure = Figure(figsize=(5, 3.2), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, label in LABELS.items():
        users = [row for row, parts in METHODS.items() if calls.parse(parts["weight"]).name == name]
        weight = np.asarray(WEIGHTS[name]()(p, jnp.full_like(p, 8)))
        axes.plot(p, weight, STYLES[name], label=f"{label}   {', '.join(users)}")
    axes.set(xlabel="share of right responses p(q)", ylabel="question weight ω(q)", ylim=(0, 1.45))
    axes.legend(loc="upper center", fontsize=5.5, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    draw(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "fig1a.png")
