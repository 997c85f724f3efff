"""Sizes as people say them."""

from governor.settings import MIB, short_count, size


def test_sizes_and_counts_read_as_a_person_writes_them() -> None:
    assert [size(count) for count in (13_100_000_000, 340 * MIB, 12 * 1024)] == ["12.2 GiB", "340 MiB", "12 KiB"]
    counts = (900, 8_192, 8_000, 61_234, 100_000, 2_500_000)
    assert [short_count(count) for count in counts] == ["900", "8.2k", "8k", "61k", "100k", "2.5M"]
