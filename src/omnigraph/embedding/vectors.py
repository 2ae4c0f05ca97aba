"""What a provider's vector has to be before anything is compared with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from omnigraph.errors import EmbeddingError
from omnigraph.model.floats import round_to_f32

NORM_MIN = 1.19e-7
"""At or below this length a vector has no direction worth trusting."""


def unit_vector(components: Sequence[float], dimension: int) -> list[float]:
    """The components over their L2 norm, in single precision as vectors are stored.

    Raises `EmbeddingError` for another length than ``dimension``, for components that are not
    finite, and for a vector without a direction.
    """
    if len(components) != dimension:
        raise EmbeddingError(
            f"embedding dimension mismatch: expected {dimension}, got {len(components)}",
            hint="choose a model that can give vectors of the property's dimension",
        )
    norm = math.hypot(*components)
    if not math.isfinite(norm):
        raise EmbeddingError("embedding is not finite: the provider sent NaN or an infinity")
    if norm <= NORM_MIN:
        raise EmbeddingError("embedding has zero norm: the provider sent a vector of zeros")
    return [round_to_f32(component / norm) for component in components]
