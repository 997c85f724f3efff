"""The picture of `lore top`: parts of the memory add up to all of it, and columns are shared without a rest."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.wire.picture import PARTS, CacheLine, memory_of, parts_of, shaped, widths

SIZES = st.integers(0, 1 << 44)


@st.composite
def caches(draw: st.DrawFn) -> CacheLine:
    cells = draw(st.integers(1, 1 << 20))
    floors = draw(st.integers(0, cells))
    talks = draw(st.integers(0, cells - floors))
    return CacheLine("lorekeep", "demo", cells, floors, talks, cells - floors - talks, draw(SIZES), (), 0)


@given(SIZES, SIZES, SIZES, SIZES, SIZES, st.lists(caches(), max_size=4))
def test_parts_of_the_memory_add_up_to_all_of_it_whatever_was_read(
    whole: int, others: int, ours: int, weights: int, kv: int, open_: list[CacheLine]
) -> None:
    parts = parts_of(whole, others, ours, weights, kv, open_)
    assert tuple(parts) == PARTS
    assert sum(parts.values()) == whole
    assert min(parts.values()) >= 0


@given(SIZES, SIZES, SIZES, SIZES)
def test_what_is_ours_is_never_counted_twice(whole: int, ours: int, weights: int, kv: int) -> None:
    parts = parts_of(whole, 0, ours, weights, kv, ())
    assert whole - parts["free"] <= max(ours, kv)


@given(st.lists(SIZES, max_size=9), st.integers(0, 300))
def test_widths_of_parts_are_all_columns_and_none_is_a_column_off_its_share(sizes: list[int], columns: int) -> None:
    found = widths(sizes, columns)
    whole = sum(sizes)
    assert sum(found) == (columns if whole else 0)
    assert not whole or all(abs(part * whole - size * columns) < whole for part, size in zip(found, sizes, strict=True))


@given(st.sampled_from(["RAM", "VRAM", None]), SIZES, SIZES, SIZES, SIZES)
def test_readings_that_are_unknown_are_no_fault(
    where: str | None, total: int, used: int, available: int, own: int
) -> None:
    gpus = [
        {"total": total, "used": used, "others": None},
        {"total": None, "used": None, "others": None},
    ]
    host = {"ram_total": total, "ram_available": available, "ram_own": own, "rss": None}
    status = {"governor": {"memory": where, "sensors": {"gpus": gpus, "host": host}}, "engine": {"kv_bytes": 0}}
    bar = memory_of(shaped(status), 0, ())
    assert sum(bar.parts.values()) == bar.whole == total
