"""Rollouts: requests for episodes, and the pools of workers that play them."""
