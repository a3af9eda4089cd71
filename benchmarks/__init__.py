"""Benchmarks, each a command: `python -m benchmarks.NAME` from the project's folder."""
