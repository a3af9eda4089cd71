"""Losses and the update loops that minimise them."""
