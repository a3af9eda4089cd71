"""`python -m benchmarks.speed`: the library's speed, as ratios that are measured side by side in one run."""
