"""Benchmarks and pass@k."""
