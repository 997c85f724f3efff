"""Sizes as people say them."""

import pytest

from orchestrator.context.sizes import estimated_tokens, gib, short, tokens_of_size
from orchestrator.errors import InvalidRequest


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ("tiny", 2_000),
        ("small", 8_000),
        ("medium", 32_000),
        ("LARGE", 100_000),
        ("huge", 500_000),
        ("massive", 2_000_000),
        ("32k", 32_000),
        ("1.5M", 1_500_000),
        ("32,000", 32_000),
        (" 7 ", 7),
    ],
)
def test_words_and_numbers_are_sizes(said: str, tokens: int) -> None:
    assert tokens_of_size(said) == tokens


@pytest.mark.parametrize("said", ["", "enormous", "-3", "12q"])
def test_anything_else_is_refused_with_the_words(said: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        tokens_of_size(said)
    assert "medium 32k" in refusal.value.hint


def test_four_bytes_are_guessed_as_one_token() -> None:
    assert [estimated_tokens(size) for size in (0, 1, 4, 5, 4_000)] == [0, 1, 1, 2, 1_000]


def test_sizes_are_told_shortly() -> None:
    assert [short(tokens) for tokens in (999, 1_000, 61_234, 100_000, 2_500_000)] == [
        "999",
        "1k",
        "61.2k",
        "100k",
        "2.5M",
    ]
    assert gib(12.2 * 2**30) == "12.2 GiB"
    assert gib(80 * 2**20) == "80.0 MiB"
