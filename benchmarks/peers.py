"""What people write instead, each in its usual words: the other side of a comparison."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def usual_formula(seq_len: int, d_model: int) -> Tensor:
    """The twenty lines that are copied from model to model."""
    position = torch.arange(seq_len, dtype=torch.float32).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float32) * (-math.log(10000.0) / d_model))
    table = torch.zeros(seq_len, d_model)
    table[:, 0::2] = torch.sin(position * div_term)
    table[:, 1::2] = torch.cos(position * div_term)
    return table


def usual_formula_at(positions: Tensor, d_model: int) -> Tensor:
    """The same at given positions, in float64 because float32 would not tell large ones apart."""
    frequencies = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = positions.double().unsqueeze(-1) * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2).float()


def fill_in_place(out: Tensor) -> None:
    """As fairseq2 fills its table, the fastest of the known ones: both halves are views of the result."""
    half = out.size(1) // 2
    sines, cosines = out[:, :half], out[:, half:]
    frequencies = torch.exp(torch.arange(half) * (-math.log(10000.0) / (half - 1)))
    torch.outer(torch.arange(out.size(0), dtype=torch.float32), frequencies, out=sines)
    cosines.copy_(sines)
    sines.sin_()
    cosines.cos_()


def timestep_embedding(timesteps: Tensor, d_model: int) -> Tensor:
    """As diffusers embeds timesteps, cosines first."""
    half = d_model // 2
    exponents = -math.log(10000.0) * torch.arange(half, dtype=torch.float32) / half
    angles = timesteps[:, None].float() * torch.exp(exponents)[None, :]
    embedding = torch.cat((angles.sin(), angles.cos()), dim=-1)
    return torch.cat((embedding[:, half:], embedding[:, :half]), dim=-1)


class UsualModule(torch.nn.Module):
    """A table as a buffer, added to x, then dropout."""

    def __init__(self, d_model: int, dropout: float, max_len: int = 5000):
        super().__init__()
        self.dropout = torch.nn.Dropout(dropout)
        self.register_buffer("pe", usual_formula(max_len, d_model).unsqueeze(0))

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.pe[:, : x.size(1)])
