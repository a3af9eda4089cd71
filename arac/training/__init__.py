"""The training loop, what it shows and whom it calls."""
