"""The public Python API: a class for each algorithm."""
