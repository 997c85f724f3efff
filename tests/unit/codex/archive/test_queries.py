"""Where names are defined: sorted rows and rows that are not sorted yet answer as one, like a plain list of all."""

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codex.archive import queries
from codex.archive.queries import ChunkPlace, Definitions

Chunks = Sequence[tuple[int, Sequence[str]]]
NAMES = st.sampled_from(["__init__", "main", "a", "ä", "𝒳", ""])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a.py", "b.py", "c/d.py"]),
        st.lists(st.tuples(st.integers(1, 9), st.lists(NAMES, max_size=3, unique=True)), max_size=4),
    ),
    max_size=12,
)


def chunks(path: str, some: Chunks) -> list[tuple[ChunkPlace, Sequence[str]]]:
    return [(ChunkPlace(path, start, start + 1), names) for start, names in some]


@given(STEPS, st.integers(1, 3), st.booleans())
def test_look_ups_are_those_of_a_plain_list(steps: list[tuple[str, Chunks]], most: int, always: bool) -> None:
    found = Definitions()
    plain: dict[str, Chunks] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queries, "_DEFINERS", most)
        for path, some in steps:
            found.replace([path], chunks(path, some))
            plain[path] = some
            if not always and path != steps[-1][0]:
                continue
            expected: dict[str, list[ChunkPlace]] = {}
            for where, every in plain.items():
                for start, names in every:
                    for name in names:
                        expected.setdefault(name, []).append(ChunkPlace(where, start, start + 1))
            assert found.defining(["__init__", "main", "a", "ä", "𝒳", "", "other"]) == {
                name: tuple(sorted(places)) for name, places in expected.items() if len(places) <= most
            }


def test_what_more_than_64_define_leads_nowhere() -> None:
    found = Definitions()
    found.replace(["a.py"], [(ChunkPlace("a.py", line, line), ("get",)) for line in range(1, 65)])
    assert len(found.defining(["get"])["get"]) == 64
    found.replace(["b.py"], [(ChunkPlace("b.py", 1, 1), ("get",))])
    assert found.defining(["get"]) == {}
    found.replace(["b.py"], [])
    assert len(found.defining(["get"])["get"]) == 64


def test_a_hundred_thousand_definitions_take_a_few_megabytes() -> None:
    found = Definitions()
    tracemalloc.start()
    try:
        for file in range(1_000):
            path = f"folder/{file}.py"
            found.replace(
                [path], [(ChunkPlace(path, line, line + 9), (f"name_{file}_{line}",)) for line in range(1, 101)]
            )
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 10_000_000
    assert found.defining(["name_77_5"]) == {"name_77_5": (ChunkPlace("folder/77.py", 5, 14),)}
