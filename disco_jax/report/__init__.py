"""What a person sees of a run, while it trains and afterwards.

    writers    metrics.jsonl, rollouts.jsonl and TensorBoard scalars, exact across restarts
    progress   the live line on a terminal, a line per step in a log
    tables     before/after, histograms of p(q), configuration, sample rollouts, as text
    run        a workdir read back as one record
    panels     what is drawn of a run, panel by panel, in the looks of `axes`
    plots      panels as figures: curves.png, comparisons of several runs
    html       that record as one self-contained page: report.html

`python -m disco_jax.report WORKDIR [WORKDIR ...]` renders one run or compares several. Importing
any of these modules is instant: plotting and templating libraries are loaded where they are used.
"""
