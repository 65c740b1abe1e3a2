"""The formula of the encoding in 60-digit decimals: the truth that the examples compare with.

Shares nothing with posenc. In float64 the angle itself would be off by up to 1e-4 rad at position 10**12.
"""

import math
from decimal import Decimal, localcontext

import numpy as np

_TWO_PI = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def exact_encoding(positions: list[int], d_model: int, base: float = 10000.0) -> np.ndarray:
    """float64 array (len(positions), d_model): sines in the even columns, cosines in the odd ones; d_model even."""
    with localcontext() as context:
        context.prec = 60
        log_base = Decimal(base).ln()
        freqs = [(-log_base * 2 * k / d_model).exp() for k in range(d_model // 2)]
        # Reduced to one turn while still exact, then an angle is a float64 and the little that it rounds away.
        angles = [[position * freq % _TWO_PI for freq in freqs] for position in positions]
        parts = [[(float(angle), float(angle - Decimal(float(angle)))) for angle in row] for row in angles]
    sine_cosine = [
        [(math.sin(a) + rest * math.cos(a), math.cos(a) - rest * math.sin(a)) for a, rest in row] for row in parts
    ]
    return np.array(sine_cosine).reshape(len(positions), d_model)
