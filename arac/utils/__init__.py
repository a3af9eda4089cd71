"""Helpers that know nothing of reinforcement learning."""
