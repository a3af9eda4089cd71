"""The public classes: `ARAC("Hopper-v5").learn(1_000_000)`."""
