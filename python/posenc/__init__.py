"""Positional encodings for PyTorch: exact at any position, the same bits everywhere.

>>> import torch, posenc
>>> posenc.encode(5, 4).shape
torch.Size([5, 4])
"""

from . import nn, reference
from ._library import __version__, cmake_prefix_path, include_path, library_path
from .functional import add, add_, add_dropout, encode, positional_encoding

__all__ = [
    "__version__",
    "add",
    "add_",
    "add_dropout",
    "cmake_prefix_path",
    "encode",
    "include_path",
    "library_path",
    "nn",
    "positional_encoding",
    "reference",
]
