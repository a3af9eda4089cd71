"""Whole episodes: the pure task, and the pools of workers that run it."""
