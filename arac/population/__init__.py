"""Many agents at once: the archive, evolution, diversity."""
