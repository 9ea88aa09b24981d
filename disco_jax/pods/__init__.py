"""Ahead-of-time compilation of a run's programs for machines that are not at hand."""
