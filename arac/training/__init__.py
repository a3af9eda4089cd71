"""The training loop, its display and its callbacks."""
