"""Helpers that are independent of reinforcement learning."""
