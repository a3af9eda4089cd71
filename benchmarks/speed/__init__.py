"""`python -m benchmarks.speed`: how fast it is, as ratios that are measured side by side in one run."""
