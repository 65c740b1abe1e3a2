"""Modules. Each ``forward`` is one call of an operator, in eager code and in TorchScript."""

import math
import warnings
from typing import Any, Dict, List, Optional, Union

import torch
from torch import Tensor

from . import functional

__all__ = ["PositionalEncoding"]

# Tables that other implementations keep in their state_dict, and that this one computes.
_TABLE_KEYS = ("pe", "weights", "weight", "_float_tensor", "inv_freq", "freqs", "positional_embedding")


def _count(x: Tensor, seq_len: int) -> Tensor:
    """0, 1, .., seq_len - 1 on the device of x, without a device that torch.jit.trace would keep as a constant."""
    return x.new_ones([seq_len], dtype=torch.int64).cumsum(0) - 1


class PositionalEncoding(torch.nn.Module):
    r"""``dropout(x * input_scale + alpha * encoding)``: adds the sinusoidal encoding to x.

    Stateless: no table, no buffer, an empty ``state_dict`` (but for a learnable alpha), any length unless ``max_len``
    is given. ``.half()``, ``.to(torch.bfloat16)`` and construction on the meta device change nothing in what it
    computes.

    Args:
        d_model: width of the encoding, the last dimension of x.
        dropout: probability with which an element of the sum is zeroed in training, in one pass with the sum
            (:func:`posenc.add_dropout`; torch's own dropout follows where alpha is learnable). Default: 0.
        max_len: if given, a checked limit: ValueError where offset + seq_len exceeds it. Not checked for a Tensor as
            offset, nor for positions, which would wait for the device. Default: no limit.
        batch_first: x is (batch, seq_len, d_model) if True, else (seq_len, batch, d_model), which nothing can tell from
            the tensor: the PyTorch tutorial's class wants False. Default: True.
        input_scale: factor on x; ``"sqrt"`` means sqrt(d_model). Default: 1.
        alpha: factor on the encoding. Default: 1.
        learnable_alpha: makes ``alpha`` a parameter that starts at that value. Default: False.
        base, freq_shift, position_scale, order, odd: the convention, see :func:`posenc.encode`.
        device, dtype: of the learnable alpha.

    Shape:
        x: (batch, seq_len, d_model), (seq_len, batch, d_model) without ``batch_first``, or (seq_len, d_model); with
        ``batch_first`` any leading dimensions.
        The result has the shape, dtype and device of x.

    Example:
        >>> encoding = posenc.nn.PositionalEncoding(512, dropout=0.1).eval()
        >>> encoding(torch.zeros(2, 10, 512)).shape
        torch.Size([2, 10, 512])
    """

    d_model: int
    dropout: float
    max_len: Optional[int]
    batch_first: bool
    input_scale: float
    fixed_alpha: float
    base: float
    freq_shift: float
    position_scale: float
    order: str
    odd: str

    def __init__(
        self,
        d_model: int,
        dropout: float = 0.0,
        max_len: Optional[int] = None,
        *,
        batch_first: bool = True,
        input_scale: Union[float, str] = 1.0,
        alpha: float = 1.0,
        learnable_alpha: bool = False,
        base: float = 10000.0,
        freq_shift: float = 0.0,
        position_scale: float = 1.0,
        order: str = "interleaved",
        odd: str = "sin",
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        name = "PositionalEncoding"
        self.d_model = functional._int(name, "d_model", d_model)
        self.dropout = functional._float(name, "dropout", dropout)
        self.max_len = None if max_len is None else functional._int(name, "max_len", max_len)
        self.batch_first = bool(batch_first)
        if isinstance(input_scale, str):
            if input_scale != "sqrt":
                raise ValueError(f'{name}: input_scale must be a float or "sqrt", but got "{input_scale}".')
            input_scale = math.sqrt(max(self.d_model, 0))
        self.input_scale = functional._float(name, "input_scale", input_scale)
        self.fixed_alpha = functional._float(name, "alpha", alpha)
        self.base = functional._float(name, "base", base)
        self.freq_shift = functional._float(name, "freq_shift", freq_shift)
        self.position_scale = functional._float(name, "position_scale", position_scale)
        self.order = order
        self.odd = odd
        if not 0.0 <= self.dropout <= 1.0:
            raise ValueError(f"{name}: dropout must be between 0 and 1, but got {self.dropout}.")
        if self.max_len is not None and self.max_len < 0:
            raise ValueError(f"{name}: max_len must be at least 0, but got {self.max_len}.")
        try:
            functional.encode(0, self.d_model, device="meta", **self._convention())  # refuses a bad convention now
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("encode:", f"{name}:", 1)) from None
        if learnable_alpha:
            self.alpha = torch.nn.Parameter(torch.tensor(self.fixed_alpha, device=device, dtype=dtype))
        else:
            self.register_parameter("alpha", None)

    @torch.jit.unused
    def _convention(self) -> Dict[str, Any]:
        return {
            "base": self.base,
            "freq_shift": self.freq_shift,
            "position_scale": self.position_scale,
            "order": self.order,
            "odd": self.odd,
        }

    def forward(self, x: Tensor, offset: Union[int, Tensor] = 0, positions: Optional[Tensor] = None) -> Tensor:
        """Adds the encoding.

        Args:
            x: see the class.
            offset: position of the first token: an int, or an integer Tensor, 0-dimensional or (batch,), on the device
                of x, which is not waited for (``max_len`` is then not checked).
            positions: positions of the tokens, (seq_len,) or (batch, seq_len), whatever ``batch_first`` says, integer
                or floating. Replaces ``offset``. ``max_len`` is not checked.
        """
        if x.dim() < 2 or x.size(-1) != self.d_model:
            raise ValueError(
                f"PositionalEncoding: x must have shape (..., seq_len, d_model) with d_model {self.d_model}, "
                f"but got {list(x.shape)}."
            )
        seq_dim = -2 if self.batch_first or x.dim() == 2 else -3
        seq_len = x.size(seq_dim)
        first = 0
        if isinstance(offset, Tensor):
            if positions is not None:
                raise ValueError("PositionalEncoding: offset must be 0 where positions are given, but got a Tensor.")
            if offset.is_floating_point() or offset.is_complex() or offset.dtype in (torch.bool, torch.uint64):
                raise TypeError(
                    f"PositionalEncoding: offset must be an int or an integer Tensor, but got {offset.dtype}."
                )
            batch = x.size(0 if self.batch_first else 1) if x.dim() == 3 else 1
            if offset.dim() > 1 or (offset.dim() == 1 and offset.size(0) != batch):
                raise ValueError(
                    f"PositionalEncoding: offset must be 0-dimensional or have shape [{batch}], one for each sequence, "
                    f"but got {list(offset.shape)}."
                )
            positions = offset.unsqueeze(-1) + _count(x, seq_len)
        else:
            first = self._offset(offset)
            max_len = self.max_len
            if positions is not None:
                if first != 0:
                    raise ValueError(
                        f"PositionalEncoding: offset must be 0 where positions are given, but got {first}. "
                        "Add it to the positions."
                    )
            elif max_len is not None:
                if first < 0 or first + seq_len > max_len:
                    raise ValueError(
                        f"PositionalEncoding: offset and offset + seq_len must be between 0 and max_len {max_len}, "
                        f"but got offset {first} and seq_len {seq_len}."
                    )
        alpha = self.alpha
        if alpha is not None and positions is None:
            positions = _count(x, seq_len) + first
        if positions is not None and seq_dim == -3:
            positions = positions.t() if positions.dim() == 2 else positions.unsqueeze(-1)
        if alpha is None or positions is None:
            if self.training and self.dropout != 0.0:
                return self._add_dropout(x, first, positions, seq_dim)
            return self._add(x, first, positions, seq_dim)
        self._check(x, first, seq_len, positions)
        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        y = (x.to(dtype) * self.input_scale + alpha * self._encode(positions, dtype)).to(x.dtype)
        return torch.nn.functional.dropout(y, self.dropout, self.training)

    def _offset(self, offset: int) -> int:
        if torch.jit.is_scripting():
            return offset
        else:
            return self._eager_offset(offset)

    @torch.jit.unused
    def _eager_offset(self, offset: int) -> int:
        return functional._int("PositionalEncoding", "offset", offset)

    def _add(self, x: Tensor, offset: int, positions: Optional[Tensor], seq_dim: int) -> Tensor:
        if torch.jit.is_scripting():
            if positions is None:
                return torch.ops.posenc.add(
                    x,
                    offset,
                    seq_dim=seq_dim,
                    input_scale=self.input_scale,
                    alpha=self.fixed_alpha,
                    base=self.base,
                    freq_shift=self.freq_shift,
                    position_scale=self.position_scale,
                    order=self.order,
                    odd=self.odd,
                )
            return torch.ops.posenc.add(
                x,
                positions,
                input_scale=self.input_scale,
                alpha=self.fixed_alpha,
                base=self.base,
                freq_shift=self.freq_shift,
                position_scale=self.position_scale,
                order=self.order,
                odd=self.odd,
            )
        else:
            return self._eager_add(x, offset, positions, seq_dim)

    @torch.jit.unused
    def _eager_add(self, x: Tensor, offset: int, positions: Optional[Tensor], seq_dim: int) -> Tensor:
        return functional.add(
            x,
            offset,
            positions,
            seq_dim=seq_dim if positions is None else -2,
            input_scale=self.input_scale,
            alpha=self.fixed_alpha,
            **self._convention(),
        )

    def _add_dropout(self, x: Tensor, offset: int, positions: Optional[Tensor], seq_dim: int) -> Tensor:
        if torch.jit.is_scripting():
            if positions is None:
                y, _ = torch.ops.posenc.add_dropout(
                    x,
                    self.dropout,
                    offset,
                    seq_dim=seq_dim,
                    input_scale=self.input_scale,
                    alpha=self.fixed_alpha,
                    base=self.base,
                    freq_shift=self.freq_shift,
                    position_scale=self.position_scale,
                    order=self.order,
                    odd=self.odd,
                )
                return y
            y, _ = torch.ops.posenc.add_dropout(
                x,
                self.dropout,
                positions,
                input_scale=self.input_scale,
                alpha=self.fixed_alpha,
                base=self.base,
                freq_shift=self.freq_shift,
                position_scale=self.position_scale,
                order=self.order,
                odd=self.odd,
            )
            return y
        else:
            return self._eager_add_dropout(x, offset, positions, seq_dim)

    @torch.jit.unused
    def _eager_add_dropout(self, x: Tensor, offset: int, positions: Optional[Tensor], seq_dim: int) -> Tensor:
        return functional.add_dropout(
            x,
            self.dropout,
            offset,
            positions,
            seq_dim=seq_dim if positions is None else -2,
            input_scale=self.input_scale,
            alpha=self.fixed_alpha,
            **self._convention(),
        )[0]

    def _check(self, x: Tensor, offset: int, seq_len: int, positions: Tensor) -> None:
        """What the operator checks where alpha is no parameter."""
        if x.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            raise TypeError(f"PositionalEncoding: x must be float64, float32, bfloat16 or float16, but got {x.dtype}.")
        if offset > 9223372036854775807 - seq_len:
            raise ValueError(f"PositionalEncoding: offset + seq_len must be at most 2^63 - 1, but got offset {offset}.")
        fits = positions.dim() < x.dim()
        if fits:
            for i in range(1, positions.dim() + 1):
                fits = fits and (positions.size(-i) == 1 or positions.size(-i) == x.size(-i - 1))
        if not fits:
            raise ValueError(
                "PositionalEncoding: positions must broadcast to the shape of x without its last dimension, "
                f"{list(x.shape[:-1])}, but got shape {list(positions.shape)}."
            )

    def _encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        if torch.jit.is_scripting():
            return torch.ops.posenc.encode(
                positions,
                self.d_model,
                base=self.base,
                freq_shift=self.freq_shift,
                position_scale=self.position_scale,
                order=self.order,
                odd=self.odd,
                dtype=dtype,
            )
        else:
            return self._eager_encode(positions, dtype)

    @torch.jit.unused
    def _eager_encode(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        return functional.encode(positions, self.d_model, dtype=dtype, **self._convention())

    @torch.jit.unused
    def extra_repr(self) -> str:
        defaults = {
            "dropout": 0.0,
            "max_len": None,
            "batch_first": True,
            "input_scale": 1.0,
            "base": 10000.0,
            "freq_shift": 0.0,
            "position_scale": 1.0,
            "order": "interleaved",
            "odd": "sin",
        }
        parts = [str(self.d_model)]
        parts += [
            f"{name}={getattr(self, name)!r}" for name, default in defaults.items() if getattr(self, name) != default
        ]
        if self.fixed_alpha != 1.0:
            parts.append(f"alpha={self.fixed_alpha}")
        if self.alpha is not None:
            parts.append("learnable_alpha=True")
        return ", ".join(parts)

    def _load_from_state_dict(
        self,
        state_dict: Dict[str, Any],
        prefix: str,
        local_metadata: Dict[str, Any],
        strict: bool,
        missing_keys: List[str],
        unexpected_keys: List[str],
        error_msgs: List[str],
    ) -> None:
        """Drops the tables of other implementations, which are computed here, so that their checkpoints load."""
        dropped = [key for key in _TABLE_KEYS if state_dict.pop(prefix + key, None) is not None]
        if dropped:
            warnings.warn(
                f"PositionalEncoding: dropped {', '.join(prefix + key for key in dropped)} from the checkpoint: the "
                "encoding is computed, not stored.",
                stacklevel=2,
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
