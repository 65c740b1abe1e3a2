"""Saves a TorchScript model that uses posenc, and a sample of what it gives, for a C++ program without Python.

Run: python examples/python/save_scripted.py text.txt model.pt sample.pt
Then: run_scripted model.pt sample.pt (examples/cpp/run_scripted.cpp)
"""

import argparse
import warnings
from pathlib import Path

import posenc
import torch
from torch import Tensor, nn

VOCABULARY = 128  # ASCII
D_MODEL = 64
BATCH, SEQ_LEN = 8, 128

# TorchScript is how models without Python are run today, and deprecated in favour of torch.export.
warnings.filterwarnings("ignore", "`torch.jit", FutureWarning)
warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)


class CharacterEncoder(nn.Module):
    """Characters (batch, seq_len) to states (batch, seq_len, d_model)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, D_MODEL)
        self.encoding = posenc.nn.PositionalEncoding(D_MODEL, dropout=0.1)
        layer = nn.TransformerEncoderLayer(D_MODEL, nhead=4, dim_feedforward=2 * D_MODEL, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.encoder(self.encoding(self.embedding(tokens)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Save a scripted model and a sample of its output for C++.")
    parser.add_argument("text", type=Path, help="ASCII text that the model is run on")
    parser.add_argument("model", type=Path, help="TorchScript file to write")
    parser.add_argument("sample", type=Path, help="file to write with tokens and output")
    files = parser.parse_args()

    # One thread, as in the C++ program: how a matrix product is shared out among threads decides its last bits.
    torch.set_num_threads(1)
    torch.manual_seed(2017)
    model = CharacterEncoder().eval()
    text = files.text.read_bytes()[: BATCH * SEQ_LEN]
    tokens = torch.tensor(list(text)).reshape(BATCH, SEQ_LEN)
    with torch.no_grad():
        output = model(tokens)

    torch.jit.script(model).save(files.model)
    torch.save({"tokens": tokens, "output": output}, files.sample)
    first = " ".join(f"{value:+.7f}" for value in output.flatten()[:4].tolist())
    print(f"{files.model}, {files.sample}: {BATCH} x {SEQ_LEN} characters of {files.text}")
    print(f"output in Python: shape {list(output.shape)}, first values {first}")


if __name__ == "__main__":
    main()
