"""The formula in a few lines of PyTorch, to read, to compare with, or to export without the library.

It forms angles in float64, so it is exact to about 1e-16 times the position, and many times slower than the operator.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["encode"]


def encode(
    positions: Tensor,
    d_model: int,
    *,
    base: float = 10000.0,
    freq_shift: float = 0.0,
    position_scale: float = 1.0,
    order: str = "interleaved",
    odd: str = "sin",
) -> Tensor:
    """The encoding of ``positions``, shape positions.shape + (d_model,), float64. Arguments as in posenc.encode."""
    if d_model % 2 and odd == "zero":
        encoding = encode(
            positions, d_model - 1, base=base, freq_shift=freq_shift, position_scale=position_scale, order=order
        )
        return torch.nn.functional.pad(encoding, (0, 1))
    width = d_model + 1 if d_model % 2 and odd == "cut" else d_model
    num_freqs = (d_model + 1) // 2
    k = torch.arange(num_freqs, dtype=torch.float64, device=positions.device)
    denominator = width - 2.0 * freq_shift if num_freqs > 1 else 1.0
    angles = positions.to(torch.float64).unsqueeze(-1) * position_scale * base ** (-2.0 * k / denominator)
    first, second = angles.sin(), angles.cos()
    if order.endswith("cos_first"):
        first, second = second, first
    if order.startswith("interleaved"):
        return torch.stack((first, second), -1).flatten(-2)[..., :d_model]
    return torch.cat((first, second[..., : d_model // 2]), -1)
