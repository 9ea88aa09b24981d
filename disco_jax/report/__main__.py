"""`python -m disco_jax.report WORKDIR [WORKDIR ...]`: renders one run, or compares several."""

import argparse
import sys
import warnings
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 2 after one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m disco_jax.report",
        description="Renders the workdir of a run as report.html and curves.png; "
        "given several, compares them in one page.",
    )
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="workdir of a training run")
    parser.add_argument(
        "-o", "--out", help="the page; default WORKDIR/report.html, for several compare.html here"
    )
    options = parser.parse_args(arguments)
    from disco_jax.report import html, plots

    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if len(options.workdirs) == 1:
                written = [
                    html.write_report(options.workdirs[0], options.out),
                    plots.save_curves(options.workdirs[0]),
                ]
            else:
                written = [html.write_comparison(options.workdirs, options.out or "compare.html")]
    except (ValueError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        print(f"report: {text}", file=sys.stderr)
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
