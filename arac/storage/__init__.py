"""Run folders: configuration, checkpoints, metrics."""
