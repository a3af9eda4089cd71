"""Rollouts: episodes as tasks, and the pools of workers that run them."""
