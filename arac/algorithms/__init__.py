"""The algorithms. Each has a config, an initial state and a generation, the step that is repeated."""
