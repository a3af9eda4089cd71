"""Populations of agents: the archive, evolution and diversity."""
