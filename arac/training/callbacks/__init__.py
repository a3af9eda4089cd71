"""Callbacks that are called during training."""
