"""Writes the English text that every CPython brings along, its language reference, to a file.

The text is plain ASCII, so that one byte is one character, and the same on every run.
Run: python examples/python/export_text.py text.txt
"""

import argparse
from pathlib import Path
from pydoc_data.topics import topics

# Quotation marks, dashes and the ellipsis; the few other characters beyond ASCII become question marks.
_TO_ASCII = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "-",
        "\u2026": "...",
    }
)


def reference_text() -> str:
    """The topics that ``help()`` knows, in alphabetical order, as one text."""
    text = "\n".join(topics[name].strip() + "\n" for name in sorted(topics))
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the text of Python's language reference to a file.")
    parser.add_argument("file", type=Path)
    path = parser.parse_args().file
    text = reference_text()
    path.write_text(text, encoding="ascii", newline="\n")
    print(f"{path}: {len(text):,} characters, {len(text.split()):,} words, {len(topics)} topics")


if __name__ == "__main__":
    main()
