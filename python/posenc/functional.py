"""The operators as Python functions.

Each is one call of the operator of the same name in ``torch.ops.posenc``, with Python defaults honoured (torch's
default device, which an operator cannot see), Python types checked, and the result returned also where the operator,
which writes, returns nothing. The formula, the five convention arguments and the accuracy are the same everywhere; they
are described once, in :func:`encode`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from . import _library  # noqa: F401  (loads the operators)

if TYPE_CHECKING:
    import numpy

__all__ = ["add", "add_", "add_dropout", "encode", "positional_encoding"]

# A named overload: torch resolves a packet by trial, which costs more than the call itself.
_encode = torch.ops.posenc.encode.default
_encode_positions = torch.ops.posenc.encode.positions
_encode_out = torch.ops.posenc.encode.out
_encode_positions_out = torch.ops.posenc.encode.positions_out
_add = torch.ops.posenc.add.default
_add_positions = torch.ops.posenc.add.positions
_add_in_place = torch.ops.posenc.add_.default
_add_in_place_positions = torch.ops.posenc.add_.positions
_add_out = torch.ops.posenc.add.out
_add_positions_out = torch.ops.posenc.add.positions_out
_add_dropout = torch.ops.posenc.add_dropout.default
_add_dropout_positions = torch.ops.posenc.add_dropout.positions


@torch.library.register_vmap("posenc::encode.positions")
def _encode_positions_vmap(info: Any, in_dims: Any, positions: Tensor, d_model: int, **kwargs: Any) -> Any:
    # d_model is appended last, so the batch dimension stays where it is.
    return _encode_positions(positions, d_model, **kwargs), in_dims[0]


def _check_tensor(op: str, name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: {name} must be a Tensor, but got {type(value).__name__}.")


def _int(op: str, name: str, value: Any) -> int:
    """``value`` as an int that a schema takes: an int, a SymInt or an integer of NumPy, within int64."""
    if isinstance(value, torch.SymInt):
        return cast(int, value)
    if type(value) is not int:
        if isinstance(value, (bool, Tensor)) or not hasattr(value, "__index__"):
            raise TypeError(f"{op}: {name} must be an int, but got {type(value).__name__}.")
        try:
            value = value.__index__()
        except TypeError:  # an array of several elements
            raise TypeError(f"{op}: {name} must be an int, but got {type(value).__name__}.") from None
    # A compiler's symbolic integers are within int64, and a comparison would become a guard.
    if not torch.compiler.is_compiling() and not -(2**63) <= value < 2**63:
        raise ValueError(f"{op}: {name} must be within int64, but got {value}.")
    return value


def _float(op: str, name: str, value: Any) -> float:
    if isinstance(value, (bool, str, Tensor)) or not hasattr(value, "__float__"):
        raise TypeError(f"{op}: {name} must be a float, but got {type(value).__name__}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _set_float(kwargs: dict[str, Any], op: str, name: str, value: Any, default: float) -> None:
    """Forwards an argument that differs from the default of the schema: each one forwarded costs time."""
    if type(value) is not float or value != default:
        kwargs[name] = _float(op, name, value)


def _set_str(kwargs: dict[str, Any], op: str, name: str, value: Any, default: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{op}: {name} must be a str, but got {type(value).__name__}.")
    if value != default:
        kwargs[name] = value


# The defaults of the schemas. Python functions have these very objects as their defaults, so that a call which leaves
# them alone is known by `is`, the cheapest check there is.
_BASE, _FREQ_SHIFT, _ONE, _ORDER, _ODD = 10000.0, 0.0, 1.0, "interleaved", "sin"
_FIRST, _SEQ_DIM = 0, -2


def _convention(op: str, base: float, freq_shift: float, position_scale: float, order: str, odd: str) -> dict[str, Any]:
    if base is _BASE and freq_shift is _FREQ_SHIFT and position_scale is _ONE and order is _ORDER and odd is _ODD:
        return {}
    kwargs: dict[str, Any] = {}
    _set_float(kwargs, op, "base", base, _BASE)
    _set_float(kwargs, op, "freq_shift", freq_shift, _FREQ_SHIFT)
    _set_float(kwargs, op, "position_scale", position_scale, _ONE)
    _set_str(kwargs, op, "order", order, _ORDER)
    _set_str(kwargs, op, "odd", odd, _ODD)
    return kwargs


def _check_no_offset(op: str, offset: Any) -> None:
    if _int(op, "offset", offset) != 0:
        raise ValueError(
            f"{op}: offset must be 0 where positions are given, but got {offset}. Add it to the positions."
        )


def _default_device() -> torch.device | None:
    """torch's default device where one is set, which a C++ operator does not see."""
    if torch.compiler.is_compiling():
        return torch.empty(0).device
    if torch._C._len_torch_function_stack():
        return torch.get_default_device()
    return None


def encode(
    seq_len_or_positions: int | Tensor,
    d_model: int,
    offset: int = 0,
    *,
    base: float = _BASE,
    freq_shift: float = _FREQ_SHIFT,
    position_scale: float = _ONE,
    order: str = _ORDER,
    odd: str = _ODD,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    r"""The sinusoidal encoding of a range of positions, or of given positions.

    With w the width (``d_model`` if even), pair k of columns at position p has the angle

    .. math:: p \cdot \text{position\_scale} \cdot \text{base}^{-2k / (w - 2 \cdot \text{freq\_shift})}

    and holds its sine and its cosine.

    Args:
        seq_len_or_positions: int: number of positions, ``offset, offset + 1, ..``; or a Tensor of positions in tokens,
            integer (not bool, not uint64) or floating, any shape, taken at their exact value.
        d_model: width of the encoding, at least 1.
        offset: position of the first row, any int64. Only with a number of positions.
        base: base of the geometric progression of frequencies, finite, > 0 (also known as theta, temperature,
            max_period, max_timescale).
        freq_shift: s in the exponent's denominator: 0 is the paper, 1 is tensor2tensor, fairseq, Whisper, DDPM.
        position_scale: factor on every position.
        order: columns of sines s and cosines c: ``"interleaved"`` s0 c0 s1 c1 .., ``"interleaved_cos_first"``
            c0 s0 c1 s1 .., ``"split"`` s0 s1 .. c0 c1 .., ``"split_cos_first"`` c0 c1 .. s0 s1 ..
        odd: what an odd ``d_model`` means: ``"sin"``: w = d_model, the unpaired column is the first function of the
            order; ``"zero"``: the encoding of width d_model - 1, then zeros; ``"cut"``: the encoding of width
            d_model + 1 without its last column; ``"error"``: ValueError.
        dtype: float64, float32, bfloat16 or float16. Default: torch's default dtype, whatever positions are.
        device: device of the result. Default: that of positions, else torch's default device.
        out: Tensor to write into and return; any strides without overlap. Its dtype and device decide. Default: a new
            one.

    Shape:
        (seq_len, d_model), or positions.shape + (d_model,).

    Returns:
        Tensor: the encoding; differentiable with respect to floating positions.

    Raises:
        ValueError: a value is out of its range, shapes or devices do not fit, or positions come with an offset.
        TypeError: a Python type or a dtype is not one of the above.

    Accuracy:
        float64 is within 4e-16 of the exact value while the angle is at most 2**64 rad; smaller types are that value
        rounded once. NaN or infinite positions give rows of NaN. The bits depend on nothing but position, column,
        convention and dtype.

    Example:
        >>> posenc.encode(2, 4, offset=3)
        tensor([[ 0.1411, -0.9900,  0.0300,  0.9996],
                [-0.7568, -0.6536,  0.0400,  0.9992]])

    Source:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.5.
    """
    kwargs = _convention("encode", base, freq_shift, position_scale, order, odd)
    width = _int("encode", "d_model", d_model)
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"encode: dtype must be a torch.dtype, but got {type(dtype).__name__}.")
    if device is not None and not isinstance(device, torch.device):
        if isinstance(device, bool) or not isinstance(device, (str, int)):
            raise TypeError(f"encode: device must be a torch.device, str or int, but got {type(device).__name__}.")
        device = torch.device(device)
    if out is not None:
        _check_tensor("encode", "out", out)
        if dtype is not None and dtype != out.dtype:
            raise TypeError(f"encode: dtype must be that of out ({out.dtype}) or None, but got {dtype}.")
        _check_device("out", out, device)

    if isinstance(seq_len_or_positions, Tensor):
        positions = seq_len_or_positions
        if positions.dim() == 0 and torch.jit.is_tracing():
            raise ValueError(
                "encode: positions must have a dimension under torch.jit.trace, which turns sizes into Tensors, "
                "but got a 0-dimensional one. Use torch.arange(seq_len), or positions.unsqueeze(0)."
            )
        _check_no_offset("encode", offset)
        _check_device("positions", positions, device)
        if out is None:
            if dtype is not None:
                kwargs["dtype"] = dtype
            return _encode_positions(positions, width, **kwargs)
        if _needs_copy(out):
            return out.copy_(_encode_positions(positions, width, dtype=out.dtype, **kwargs))
        _encode_positions_out(positions, width, out=out, **kwargs)
        return out

    seq_len = _int("encode", "seq_len", seq_len_or_positions)
    first = _int("encode", "offset", offset)
    if out is None:
        if dtype is not None:
            kwargs["dtype"] = dtype
        if device is None:
            device = _default_device()
        if device is not None:
            kwargs["device"] = device
        return _encode(seq_len, width, first, **kwargs)
    if _needs_copy(out):
        return out.copy_(_encode(seq_len, width, first, dtype=out.dtype, device=out.device, **kwargs))
    _encode_out(seq_len, width, first, out=out, **kwargs)
    return out


def _check_device(name: str, tensor: Tensor, device: torch.device | str | int | None) -> None:
    if device is not None and torch.empty(0, device=device).device != tensor.device:
        raise ValueError(
            f"encode: device must be that of {name} ({tensor.device}) or None, but got {device}. Use {name}.to(device)."
        )


def _needs_copy(out: Tensor) -> bool:
    """Dynamo refuses a non-contiguous keyword named ``out``."""
    return torch.compiler.is_compiling() and not out.is_contiguous()


def _check_one_position(op: str, x: Tensor, positions: Tensor) -> None:
    """A single position for many tokens is nearly always an offset in the wrong place."""
    if torch.compiler.is_compiling() or positions.dim() > 1 or x.dim() < 2:
        return  # a compiler may not know the sizes yet
    if positions.numel() == 1 and x.numel() != x.shape[-1]:
        raise ValueError(
            f"{op}: positions must hold a position for each token of x with shape {list(x.shape)}, but got a single "
            "one. Use offset=int(positions) to count up from it, or positions.expand(x.shape[:-1]) to give it to all."
        )


def _add_arguments(
    op: str,
    x: Tensor,
    offset: int | Tensor,
    positions: Tensor | None,
    seq_dim: int,
    input_scale: float,
    alpha: float,
    *convention: Any,
) -> tuple[int | Tensor, dict[str, Any]]:
    """Checks what every form of add takes; returns the offset, or the positions, and the keyword arguments."""
    if not isinstance(x, Tensor):
        _check_tensor(op, "x", x)
    kwargs = _convention(op, *convention)
    if input_scale is not _ONE:
        _set_float(kwargs, op, "input_scale", input_scale, _ONE)
    if alpha is not _ONE:
        _set_float(kwargs, op, "alpha", alpha, _ONE)
    if positions is None and type(offset) is not int and isinstance(offset, Tensor):
        positions, offset = offset, 0
    if positions is None:
        if type(seq_dim) is not int or seq_dim != -2:
            kwargs["seq_dim"] = _int(op, "seq_dim", seq_dim)
        return _int(op, "offset", offset), kwargs
    _check_tensor(op, "positions", positions)
    _check_no_offset(op, offset)
    if _int(op, "seq_dim", seq_dim) != -2:
        raise ValueError(
            f"{op}: seq_dim must be -2 where positions are given, but got {seq_dim}. "
            "Give positions the shape that broadcasts to x.shape[:-1]."
        )
    _check_one_position(op, x, positions)
    return positions, kwargs


def add(
    x: Tensor,
    offset: int | Tensor = _FIRST,
    positions: Tensor | None = None,
    *,
    seq_dim: int = _SEQ_DIM,
    input_scale: float = _ONE,
    alpha: float = _ONE,
    base: float = _BASE,
    freq_shift: float = _FREQ_SHIFT,
    position_scale: float = _ONE,
    order: str = _ORDER,
    odd: str = _ODD,
    out: Tensor | None = None,
) -> Tensor:
    """``x * input_scale + alpha * encoding``, in one pass.

    Bit for bit what eager PyTorch gives for
    ``(x.float() * input_scale + alpha * posenc.encode(..., dtype=torch.float32)).to(x.dtype)``, in float64 for float64
    x. To script a model use the module or ``torch.ops.posenc.add``.

    Args:
        x: shape (..., seq_len, d_model), float64, float32, bfloat16 or float16, at least 2 dimensions, any strides.
        offset: position of the first token, in tokens. A Tensor here means ``positions``, as in the operator; offsets
            for each sequence are what :class:`posenc.nn.PositionalEncoding` takes.
        positions: positions of the tokens, integer or floating, on the device of x, broadcast to ``x.shape[:-1]``.
            Replaces ``offset``; passing both raises ValueError. Default: offset, offset + 1, ..
        seq_dim: dimension of x along which positions count up from ``offset``.
        input_scale: factor on x; sqrt(d_model) in the paper.
        alpha: factor on the encoding.
        base, freq_shift, position_scale, order, odd: the convention, see :func:`encode`.
        out: Tensor to write into and return, of the shape, dtype and device of x; may be x itself. Default: a new one.

    Returns:
        Tensor: dtype, shape, device and (dense) strides of x; differentiable, any number of times.

    Raises:
        ValueError: a value is out of its range, shapes or devices do not fit, or positions come with an offset.
        TypeError: a Python type or a dtype is not one of the above.
        IndexError: x has no dimension ``seq_dim``.

    Example:
        >>> x = torch.zeros(8, 3, 4)
        >>> torch.equal(posenc.add(x, offset=5)[0], posenc.encode(3, 4, offset=5))
        True
    """
    # Most calls; what follows costs a small one as much again as the operator.
    plain = base is _BASE and freq_shift is _FREQ_SHIFT and position_scale is _ONE and order is _ORDER and odd is _ODD
    plain = plain and alpha is _ONE and input_scale is _ONE and seq_dim is _SEQ_DIM and positions is None
    if plain and out is None and type(x) is Tensor and type(offset) is int and offset is _FIRST:
        return _add(x)
    at, kwargs = _add_arguments(
        "add", x, offset, positions, seq_dim, input_scale, alpha, base, freq_shift, position_scale, order, odd
    )
    if out is None:
        # Looking for an int first: isinstance(int, Tensor) goes a long way.
        return (
            _add(x, at, **kwargs) if type(at) is int or not isinstance(at, Tensor) else _add_positions(x, at, **kwargs)
        )
    _check_tensor("add", "out", out)
    if _needs_copy(out):
        return out.copy_(_add_positions(x, at, **kwargs) if isinstance(at, Tensor) else _add(x, at, **kwargs))
    if isinstance(at, Tensor):
        _add_positions_out(x, at, out=out, **kwargs)
    else:
        _add_out(x, at, out=out, **kwargs)
    return out


def add_(
    x: Tensor,
    offset: int | Tensor = 0,
    positions: Tensor | None = None,
    *,
    seq_dim: int = -2,
    input_scale: float = _ONE,
    alpha: float = _ONE,
    base: float = _BASE,
    freq_shift: float = _FREQ_SHIFT,
    position_scale: float = _ONE,
    order: str = _ORDER,
    odd: str = _ODD,
) -> Tensor:
    """:func:`add` in place: writes into x and returns it. No tensor is allocated unless x needs a gradient.

    Args: those of :func:`add`. x has no two elements in one place of memory, and is no leaf that requires grad.
    """
    at, kwargs = _add_arguments(
        "add_", x, offset, positions, seq_dim, input_scale, alpha, base, freq_shift, position_scale, order, odd
    )
    if isinstance(at, Tensor):
        _add_in_place_positions(x, at, **kwargs)
    else:
        _add_in_place(x, at, **kwargs)
    return x


def add_dropout(
    x: Tensor,
    p: float,
    offset: int | Tensor = _FIRST,
    positions: Tensor | None = None,
    *,
    seq_dim: int = _SEQ_DIM,
    input_scale: float = _ONE,
    alpha: float = _ONE,
    base: float = _BASE,
    freq_shift: float = _FREQ_SHIFT,
    position_scale: float = _ONE,
    order: str = _ORDER,
    odd: str = _ODD,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Dropout of ``x * input_scale + alpha * encoding``, in one pass.

    Always drops: it is :class:`posenc.nn.PositionalEncoding` that knows training from evaluation. With probability p an
    element of the result is 0, else it is the value of :func:`add` in the dtype of x, times 1 / (1 - p), multiplied in
    float32 (float64 for float64 x) and rounded once more. p is met to 2^-32. The mask depends on the state of the
    generator and on the index of an element in the shape of x, not on strides, threads or instruction set, and nothing
    of the size of x is kept for the backward, which computes it again.

    Args:
        x, offset, positions, seq_dim, input_scale, alpha: see :func:`add`.
        base, freq_shift, position_scale, order, odd: the convention, see :func:`encode`.
        p: probability of a zero, 0 to 1. 0 gives the bits of :func:`add` and draws no random number.
        generator: of the device of x. Default: that of the device, which ``torch.manual_seed`` sets.

    Returns:
        tuple[Tensor, Tensor]: the result, as of :func:`add`, and ``rng_state``, an int64 Tensor with the seed and the
        offset that the mask was made from: zeros where nothing was drawn. It is empty where ``add`` and ATen
        operations have run instead: in forward mode, under ``torch.func``, for positions that need a gradient and on
        devices without a kernel of posenc.

    Raises:
        ValueError: p is not between 0 and 1, the generator is of another device, or as in :func:`add`.
        TypeError, IndexError: as in :func:`add`.

    Example:
        >>> x = torch.randn(8, 100, 64)
        >>> y, _ = posenc.add_dropout(x, 0.5)
        >>> bool(((y == 0) | (y == 2 * posenc.add(x))).all())
        True
    """
    at, kwargs = _add_arguments(
        "add_dropout", x, offset, positions, seq_dim, input_scale, alpha, base, freq_shift, position_scale, order, odd
    )
    p = _float("add_dropout", "p", p)
    if generator is not None:
        if not isinstance(generator, torch.Generator):
            raise TypeError(f"add_dropout: generator must be a torch.Generator, but got {type(generator).__name__}.")
        kwargs["generator"] = generator
    if isinstance(at, Tensor):
        return _add_dropout_positions(x, p, at, **kwargs)
    return _add_dropout(x, p, at, **kwargs)


def positional_encoding(seq_len: int, d_model: int, base: float = _BASE) -> numpy.ndarray:
    """The encoding of positions 0 .. seq_len - 1 as a NumPy array of float64, shape (seq_len, d_model).

    Even columns hold sines, odd ones cosines. See :func:`encode`, of which this is the float64 result.

    Example:
        >>> posenc.positional_encoding(5, 4)[3].round(3).tolist()
        [0.141, -0.99, 0.03, 1.0]
    """
    return encode(seq_len, d_model, base=base, dtype=torch.float64, device="cpu").numpy()
