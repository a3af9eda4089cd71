"""The algorithms: each a config, a first state and a generation."""
