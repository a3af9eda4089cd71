"""Deprecated: `arac.models.mlp` by its earlier name."""

import warnings

from arac.models.mlp import *  # noqa: F403

warnings.warn("arac.networks is arac.models.mlp now; import from there.", DeprecationWarning, stacklevel=2)
