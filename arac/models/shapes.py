"""The arrays that policies take and return: of JAX or of NumPy, with any number of leading axes."""

from typing import Any, TypeAlias

from jaxtyping import Float

Observation: TypeAlias = Float[Any, "*batch obs"]
Action: TypeAlias = Float[Any, "*batch action"]  # also noise, means and points of flows, which have its shape
LogProb: TypeAlias = Float[Any, "*batch"]
