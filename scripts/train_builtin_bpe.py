"""Trains the merges of the built-in models' tokenizer, and writes them into the package.

Run once by a person; the result is committed, so building a model never trains anything. The text is the standard library
of the Python that runs this (PSF licence). The pieces are those of llama.cpp's pre-tokenizer `llama-bpe`, cut once more
around line ends: a token is either line ends or has none, which is what lets the quoting model stop where a line ends.
"""

import argparse
import sysconfig
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import regex  # type: ignore[import-untyped]  # comes with tiktoken

from orchestrator.engine.builtin.alphabet import BYTE_TO_SIGN

MERGES = 3839  # with 256 bytes and one end-of-text: 4,096 tokens, the words of the Golay code
PIECES = regex.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LINE_ENDS = regex.compile(r"[\r\n]+|[^\r\n]+")
TARGET = Path(__file__).resolve().parent.parent / "orchestrator" / "engine" / "builtin" / "merges.txt"

Pair = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=Path(sysconfig.get_path("stdlib")), help="a folder of *.py files")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    merges = train(pieces_of(sorted(options.text.glob("*.py"))), MERGES)
    options.out.write_text("".join(f"{left} {right}\n" for left, right in merges), encoding="utf-8")
    print(f"{len(merges)} merges written to {options.out}")


def pieces_of(files: list[Path]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for file in files:
        for piece in PIECES.findall(file.read_text(encoding="utf-8", errors="replace")):
            counts.update(LINE_ENDS.findall(piece))
    return Counter({"".join(BYTE_TO_SIGN[byte] for byte in piece.encode()): n for piece, n in counts.items()})


def train(pieces: Counter[str], wanted: int) -> list[Pair]:
    """Byte-pair merges, most frequent first, ties by text. Counts are kept up to date instead of counted anew."""
    words = [list(piece) for piece in pieces]
    weights = list(pieces.values())
    counts, places = count_pairs(words, weights)
    merges: list[Pair] = []
    known: set[str] = set()
    while len(merges) < wanted:
        pair = max(counts, key=lambda p: (counts[p], p))
        merged = pair[0] + pair[1]
        if merged in known:  # a second way to a token that exists would give one id two names
            del counts[pair]
            continue
        known.add(merged)
        merges.append(pair)
        for index in places.pop(pair):
            replace(words, weights[index], index, pair, counts, places)
        counts.pop(pair, None)
    return merges


def count_pairs(words: list[list[str]], weights: list[int]) -> tuple[Counter[Pair], defaultdict[Pair, set[int]]]:
    counts: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for index, word in enumerate(words):
        for pair in pairwise(word):
            counts[pair] += weights[index]
            places[pair].add(index)
    return counts, places


def replace(
    words: list[list[str]],
    weight: int,
    index: int,
    pair: Pair,
    counts: Counter[Pair],
    places: defaultdict[Pair, set[int]],
) -> None:
    word = words[index]
    for old in pairwise(word):
        counts[old] -= weight
    words[index] = word = joined(word, pair)
    for new in pairwise(word):
        counts[new] += weight
        places[new].add(index)


def joined(word: list[str], pair: Pair) -> list[str]:
    out: list[str] = []
    for sign in word:
        if out and (out[-1], sign) == pair:
            out[-1] += sign
        else:
            out.append(sign)
    return out


if __name__ == "__main__":
    main()
