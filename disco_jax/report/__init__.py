"""Metrics on disk, the progress line, plots, the HTML report."""
