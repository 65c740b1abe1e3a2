"""Draws the encoding and the properties that make it useful, and prints them as numbers.

Writes heatmap.png, similarity.png and wavelengths.png.
Run: python examples/python/pictures.py FOLDER
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed

import matplotlib.pyplot as plt
import numpy as np
import posenc
import torch
from exact import exact_encoding
from matplotlib.axes import Axes
from matplotlib.figure import Figure

D_MODEL = 128
FAR = 10**9  # position
ROWS = 2_048  # of which every two are compared
BASES = [100.0, 10_000.0, 100_000.0]
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
BASE_COLOURS = dict(zip(BASES, [ORANGE, BLUE, GREEN], strict=True))

plt.rcParams.update(
    {
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
        "figure.constrained_layout.w_pad": 0.14,
        "figure.constrained_layout.h_pad": 0.10,
        "savefig.dpi": 130,
    }
)


def encode(seq_len: int, d_model: int = D_MODEL, offset: int = 0, base: float = 10000.0) -> np.ndarray:
    return posenc.encode(seq_len, d_model, offset, base=base, dtype=torch.float64).numpy()


def rotate(rows: np.ndarray, tokens: int) -> np.ndarray:
    """R(tokens) applied to each pair (sine, cosine) of rows: a rotation that does not know their position."""
    turn = exact_encoding([tokens], D_MODEL)[0]
    turn_sine, turn_cosine = turn[0::2], turn[1::2]
    sine, cosine = rows[:, 0::2], rows[:, 1::2]
    rotated = np.empty_like(rows)
    rotated[:, 0::2] = sine * turn_cosine + cosine * turn_sine
    rotated[:, 1::2] = cosine * turn_cosine - sine * turn_sine
    return rotated


def largest_error(offset: int) -> float:
    """Of the 128 rows from ``offset`` on, against the formula in decimals."""
    exact = exact_encoding(list(range(offset, offset + 128)), D_MODEL)
    return abs(encode(128, offset=offset) - exact).max()


# ---- heatmap.png ----


def heatmap() -> Figure:
    figure, axes = plt.subplots(1, 2, figsize=(13, 6), sharey=True)
    ranges = [
        (0, "From position 0"),
        (FAR, f"P4: from position {FAR:,} (largest error {largest_error(FAR):.0e})"),
    ]
    for axis, (offset, title) in zip(axes, ranges, strict=True):
        image = axis.imshow(encode(128, offset=offset), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        axis.set_title(title)
        axis.set_xlabel("column (even: sine, odd: cosine)")
        axis.set_xticks([0, 32, 64, 96, 127])
        axis.set_yticks([0, 32, 64, 96, 127])
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel("position, tokens")
    axes[1].set_ylabel(f"position - {FAR:,}, tokens")
    axes[1].tick_params(labelleft=True)
    figure.colorbar(image, ax=axes, label="value of the encoding", shrink=0.9, ticks=[-1, -0.5, 0, 0.5, 1])
    figure.suptitle(f"Sinusoidal encoding, d_model {D_MODEL}, base 10000", fontsize=14, fontweight="bold")
    return figure


# ---- similarity.png ----


def draw_similarity_matrix(axis: Axes) -> None:
    rows = encode(128)
    image = axis.imshow(rows @ rows.T, cmap="cividis", interpolation="nearest")
    axis.set_title("P2: dot products of rows")
    axis.set_xlabel("position, tokens")
    axis.set_ylabel("position, tokens")
    axis.spines[:].set_visible(False)
    axis.figure.colorbar(image, ax=axis, label="dot product", shrink=0.85)


def draw_similarity_by_distance(axis: Axes) -> None:
    distances = np.arange(129)
    for offset, colour, style in [(0, BLUE, "-"), (1_000_000, ORANGE, (0, (2, 3)))]:
        rows = encode(129, offset=offset)
        axis.plot(distances, rows @ rows[0], color=colour, linestyle=style, linewidth=2.5, label=f"{offset:,}")
    axis.set_title("P2: it falls, and only distance counts")
    axis.set_xlabel("distance, tokens")
    axis.set_ylabel("dot product")
    axis.legend(frameon=False, title="position of the first row")


def nearest_rows(count: int, max_distance: int) -> np.ndarray:
    """Among the first ``count`` rows, the smallest distance between two that are 1, 2, .. tokens apart."""
    rows = encode(count)
    return np.array([np.linalg.norm(rows[k:] - rows[:-k], axis=1).min() for k in range(1, max_distance + 1)])


def draw_uniqueness(axis: Axes) -> None:
    count = ROWS
    nearest = nearest_rows(count, count - 1)
    axis.plot(np.arange(1, count), nearest, color=BLUE, linewidth=1)
    k = int(nearest.argmin()) + 1
    axis.plot(k, nearest[k - 1], "o", color=ORANGE)
    axis.annotate(
        f"closest two of {count:,} rows:\n{nearest[k - 1]:.2f}, {k} token apart",
        (k, nearest[k - 1]),
        xytext=(14, -5),
        textcoords="offset points",
    )
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_title("P1, P2: near rows are close, none are the same")
    axis.set_xlabel("distance, tokens")
    axis.set_ylabel("smallest distance of two rows")


def similarity() -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(16, 5.2))
    draw_similarity_matrix(axes[0])
    draw_similarity_by_distance(axes[1])
    draw_uniqueness(axes[2])
    figure.suptitle(f"What a model can read off, d_model {D_MODEL}, base 10000", fontsize=14, fontweight="bold")
    return figure


# ---- wavelengths.png ----


def wavelengths_of(base: float) -> np.ndarray:
    """Tokens per turn of each pair, measured on rows: the angle between neighbours is the frequency."""
    first, second = encode(2, base=base)
    cross = second[0::2] * first[1::2] - second[1::2] * first[0::2]
    dot = second[0::2] * first[0::2] + second[1::2] * first[1::2]
    return 2 * np.pi / np.arctan2(cross, dot)


def change_per_token(base: float) -> np.ndarray:
    """How far the point (sine, cosine) of each pair moves from one position to the next."""
    step = np.diff(encode(2, base=base), axis=0)[0]
    return np.hypot(step[0::2], step[1::2])


def draw_by_pair(axis: Axes, title: str, label: str, values) -> None:
    for base in BASES:
        axis.plot(values(base), color=BASE_COLOURS[base], linewidth=2.5, label=f"{base:,.0f}")
    axis.set_yscale("log")
    axis.set_title(title)
    axis.set_xlabel("pair of columns")
    axis.set_ylabel(label)
    axis.grid(axis="y", color="#dddddd")
    axis.legend(frameon=False, title="base")


def draw_rotation(axis: Axes) -> None:
    pair, tokens = 16, 12
    positions = [0, 20, 40]
    rows = encode(max(positions) + tokens + 1)[:, 2 * pair : 2 * pair + 2]
    turn = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.sin(turn), np.cos(turn), color="#cccccc", zorder=0)
    for position, colour in zip(positions, [BLUE, ORANGE, GREEN], strict=True):
        arc = rows[position : position + tokens + 1]
        axis.plot(arc[:, 0], arc[:, 1], ".-", color=colour, linewidth=2)
        for point, weight in [(position, "normal"), (position + tokens, "bold")]:
            axis.annotate(str(point), rows[point] * 1.14, ha="center", va="center", color=colour, fontweight=weight)
    axis.set_aspect("equal")
    axis.set_xlim(-1.35, 1.35)
    axis.set_ylim(-1.35, 1.35)
    axis.set_title(f"P3: {tokens} tokens are the same turn everywhere")
    axis.set_xlabel(f"sine of pair {pair}")
    axis.set_ylabel(f"cosine of pair {pair}")


def wavelengths() -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(16, 5.2))
    draw_by_pair(axes[0], "Wavelength of each pair", "tokens per turn", wavelengths_of)
    draw_by_pair(axes[1], "P5: change from one token to the next", "distance moved by (sine, cosine)", change_per_token)
    draw_rotation(axes[2])
    figure.suptitle(f"Frequencies, d_model {D_MODEL}", fontsize=14, fontweight="bold")
    return figure


# ---- The same as numbers. ----


def print_properties() -> None:
    rows = encode(ROWS)
    smallest = torch.pdist(torch.from_numpy(rows)).min()
    print(f"P1 uniqueness     smallest distance between any two of {len(rows):,} rows: {smallest:.3f}")

    near, far = encode(41), encode(41, offset=FAR)
    dots, far_dots = near @ near[0], far @ far[0]
    falling = ", ".join(f"{dots[k]:.1f}" for k in [0, 1, 10, 40])
    print(f"P2 smoothness     dot product of rows 0, 1, 10, 40 tokens apart: {falling}")
    print(f"                  the same from position {FAR:,} on, largest difference: {abs(far_dots - dots).max():.1e}")

    for tokens in [1, 1_000_000]:
        error = abs(rotate(rows, tokens) - encode(len(rows), offset=tokens)).max()
        print(f"P3 linearity      largest |R(k) PE(p) - PE(p + k)| for k = {tokens:,}: {error:.1e}")

    for offset in [10**6, FAR]:
        print(f"P4 extrapolation  largest error of 128 rows from position {offset:,} on: {largest_error(offset):.1e}")

    for base in BASES:
        change, longest = change_per_token(base), wavelengths_of(base)[-1]
        print(
            f"P5 frequencies    base {base:,.0f}: per token the first pair moves by {change[0]:.2f}, "
            f"the last by {change[-1]:.1e} (one turn in {longest:,.0f} tokens)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the encoding and its properties.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for draw in (heatmap, similarity, wavelengths):
        path = folder / f"{draw.__name__}.png"
        draw().savefig(path)
        print(path)
    print_properties()


if __name__ == "__main__":
    main()
