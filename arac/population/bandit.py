"""Allocation of episodes to learners by upper confidence bounds (CERL)."""

import numpy as np
from jaxtyping import Float, Int


def ucb_scores(
    values: Float[np.ndarray, " learner"], visits: Int[np.ndarray, " learner"], coefficient: float
) -> Float[np.ndarray, " learner"]:
    """Return each learner's score: normalised value plus `c sqrt(ln(all visits) / visits)`."""
    shifted = values - values.min()
    normalised = shifted / (shifted.sum() + 0.1)
    return normalised + coefficient * np.sqrt(np.log(visits.sum()) / visits)


def allocate(scores: Float[np.ndarray, " learner"], count: int, rng: np.random.Generator) -> Int[np.ndarray, " count"]:
    """Draw `count` learners with probabilities proportional to their scores; return their sorted indices."""
    if scores.sum() <= 0:
        return np.sort(rng.integers(len(scores), size=count))
    return np.sort(rng.choice(len(scores), size=count, p=scores / scores.sum()))
