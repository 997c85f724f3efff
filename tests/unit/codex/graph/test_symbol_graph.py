"""The symbol graph: links, and what lies around a hit."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from threading import Event

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.memory_archive import MemoryArchive
from support.waiting import SOON

from codex.archive.queries import ChunkMatch, ChunkPlace
from codex.documents import Document
from codex.errors import ArchiveDamaged
from codex.graph import symbol_graph
from codex.graph.symbol_graph import SymbolGraph, build_graph, places_of
from codex.searching.neighbourhood import BEHIND, COMING, Neighbourhoods, too_many
from codex.searching.search import Search, SearchResult

FILES = {
    "a.py": "from b import middle\n\ndef begin():\n    return middle()\n",
    "b.py": "from c import finish\n\ndef middle():\n    return finish()\n",
    "c.py": "def finish():\n    return 1\n",
    "alone.py": "def apart():\n    return 2\n",
}
A, B, C = ChunkPlace("a.py", 1, 4), ChunkPlace("b.py", 1, 4), ChunkPlace("c.py", 1, 2)


def graph(files: dict[str, str] = FILES) -> SymbolGraph:
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in files.items()])
    return build_graph(archive.chunks("c"))


def test_a_use_links_to_its_definition_and_weaker_back() -> None:
    symbol_graph = {place: dict(graph().neighbours(place)) for place in (A, B, C)}
    assert symbol_graph[A].keys() == {B}
    assert symbol_graph[B].keys() == {A, C}
    assert symbol_graph[A][B] > symbol_graph[B][A] > 0
    assert graph().neighbours(ChunkPlace("gone.py", 1, 1)) == []


def test_expansion_keeps_to_its_hops_and_leaves_out_the_hits_themselves() -> None:
    assert [(one.place, one.hops) for one in graph().expand({A: 1.0}, hops=1)] == [(B, 1)]
    assert [(one.place, one.hops) for one in graph().expand({A: 1.0}, hops=2)] == [(B, 1), (C, 2)]
    assert graph().expand({A: 1.0}, hops=0) == ()
    assert graph().expand({}) == ()
    assert graph().expand({ChunkPlace("gone.py", 1, 1): 1.0}) == ()


def test_expansion_keeps_to_its_tokens() -> None:
    found = graph().expand({A: 1.0}, tokens=25)
    assert [one.place for one in found] == [C]
    assert graph().expand({A: 1.0}, tokens=9) == ()


def test_chunks_of_one_class_belong_together() -> None:
    body = "        value = 1\n" * 40
    text = "class Big:\n" + "".join(f"    def {name}(self):\n{body}" for name in ("one", "two"))
    built = graph({"big.py": text})
    assert len(built.places) == 2
    assert [place for place, _ in built.neighbours(built.places[1])] == [built.places[0]]


def test_a_name_that_everybody_defines_links_nobody() -> None:
    files = {f"m{number}.py": f"def run():\n    return {number}\n" for number in range(8)}
    built = graph({**files, "use.py": "def go():\n    return run()\n"})
    assert len(built.packed.targets) == 0


def test_the_same_chunks_give_the_same_graph() -> None:
    one, other = graph(), graph(dict(reversed(FILES.items())))
    assert one.expand({A: 1.0}) == other.expand({A: 1.0})


def test_an_empty_archive_has_an_empty_graph() -> None:
    assert len(build_graph([]).places) == 0


def test_the_neighbourhood_of_hits_comes_with_texts_below_them() -> None:
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in FILES.items()])
    hits = Search(archive).search("begin", "c", 1).hits
    found = Neighbourhoods(archive).joined("begin", "c", SearchResult(hits), 4, beside=True)
    assert found.hits[:1] == hits
    near = found.hits[1:]
    assert [(hit.path, hit.scores["hops"]) for hit in near] == [("b.py", 1.0), ("c.py", 2.0)]
    assert near[0].text == FILES["b.py"].rstrip("\n")
    assert all(hit.score <= hits[0].score for hit in near)


def test_a_graph_is_built_again_only_after_the_archive_changed() -> None:
    archive = MemoryArchive()
    archive.replace("c", [Document("c.py", FILES["c.py"], "c", 1)])
    near = Neighbourhoods(archive)
    first = near.graph("c")
    assert near.graph("c") is first
    archive.replace("c", [Document("b.py", FILES["b.py"], "b", 1)])
    assert len(near.graph("c").packed.targets) == 2


def test_a_large_graph_answers_as_it_was_while_the_next_one_is_built_and_says_so() -> None:
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in FILES.items()])
    ticks = count()
    slow = Neighbourhoods(archive, clock=lambda: float(next(ticks)))
    found = Search(archive).search("begin", "c", 4)
    assert slow.joined("begin", "c", found, 4).notices == ()
    archive.replace("c", [Document("d.py", "def later():\n    return begin()\n", "d", 1)])
    joined = slow.joined("begin", "c", found, 4)
    assert joined.notices == (BEHIND,)
    assert [hit.path for hit in joined.hits] == ["a.py", "b.py", "c.py"]
    slow.graph("c")  # waits for the one that is being built
    later = slow.joined("begin", "c", found, 4)
    assert later.notices == ()
    assert "d.py" in {hit.path for hit in later.hits}


def test_a_large_graph_that_was_never_built_is_waited_for_by_nobody_and_says_so() -> None:
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in FILES.items()])
    near = Neighbourhoods(archive, at_once=2)
    found = Search(archive).search("begin", "c", 4)
    joined = near.joined("begin", "c", found, 4)
    assert (joined.hits, joined.notices) == (found.hits, (COMING,))
    near.graph("c")  # waits for the one that is being built
    assert [hit.path for hit in near.joined("begin", "c", found, 4).hits] == ["a.py", "b.py", "c.py"]


def test_a_codex_of_too_many_chunks_gets_no_graph_and_says_so_until_it_is_smaller() -> None:
    archive = MemoryArchive()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in FILES.items()])
    near = Neighbourhoods(archive, most_chunks=3)
    found = Search(archive).search("begin", "c", 4)
    joined = near.joined("begin", "c", found, 4)
    assert (joined.hits, joined.notices) == (found.hits, (too_many(4, 3),))
    archive.replace("c", (), ["alone.py"])
    assert [hit.path for hit in near.joined("begin", "c", found, 4).hits] == ["a.py", "b.py", "c.py"]


def test_a_fault_of_a_graph_built_beside_is_told_to_the_next_search() -> None:
    class Failing(MemoryArchive):
        broken = Event()
        told = Event()

        def chunks(self, codex: str) -> Iterator[ChunkMatch]:
            if self.broken.is_set():
                self.told.set()
                raise ArchiveDamaged(codex, "torn")
            return super().chunks(codex)

    archive = Failing()
    archive.replace("c", [Document(path, text, path, len(text)) for path, text in FILES.items()])
    ticks = count()
    slow = Neighbourhoods(archive, clock=lambda: float(next(ticks)))
    found = Search(archive).search("begin", "c", 4)
    slow.joined("begin", "c", found, 4)
    archive.replace("c", (), ["alone.py"])
    archive.broken.set()
    slow.joined("begin", "c", found, 4)
    assert archive.told.wait(SOON)

    def search_on() -> None:
        while slow.joined("begin", "c", found, 4).notices == (BEHIND,):
            pass

    with pytest.raises(ArchiveDamaged):
        search_on()


def test_graphs_of_codices_that_are_not_searched_any_more_are_freed() -> None:
    archive = MemoryArchive()
    for codex in ("one", "two"):
        archive.replace(codex, [Document(path, text, path, len(text)) for path, text in FILES.items()])
    near = Neighbourhoods(archive, kept_chunks=5)
    first = near.graph("one")
    near.graph("two")
    assert near.graph("one") is not first


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["p.py", "q.py", "r.py"]),
            st.frozensets(st.sampled_from("abcdef"), max_size=3),
            st.lists(st.sampled_from("abcdefgh"), max_size=4, unique=True),
        ),
        max_size=12,
    )
)
def test_links_are_those_of_the_rule_written_down_plainly(said: list[tuple[str, frozenset[str], list[str]]]) -> None:
    chunks = [
        ChunkMatch(ChunkPlace(path, at + 1, at + 1), "", "", "", tuple(sorted(names)), tuple(used))
        for at, (path, names, used) in enumerate(said)
    ]
    wanted: dict[tuple[ChunkPlace, ChunkPlace], float] = defaultdict(float)
    for chunk in chunks:
        for name in chunk.references:
            definers = [one.place for one in chunks if name in one.names]
            if chunk.place not in definers and 0 < len(definers) <= 5:
                for place in definers:
                    wanted[chunk.place, place] += 1 / len(definers)
                    wanted[place, chunk.place] += 0.5 / len(definers)
    built = build_graph(chunks)
    found = {(place, other): weight for place in built.places for other, weight in built.neighbours(place)}
    assert found == pytest.approx(wanted)


@given(
    st.lists(st.tuples(st.sampled_from(["b.py", "a.py", "a/c.py"]), st.integers(1, 9), st.integers(0, 3)), unique=True)
)
def test_places_are_kept_in_their_order_and_found_again(said: list[tuple[str, int, int]]) -> None:
    every = [ChunkPlace(path, start, start + more) for path, start, more in said]
    names = list(dict.fromkeys(place.path for place in every))
    columns = ([names.index(one.path) for one in every], [one.start for one in every], [one.end for one in every])
    places, order = places_of(names, *(np.array(column, np.int32) for column in columns))
    assert list(places) == sorted(every) == [every[at] for at in order]
    assert [places.at(place) for place in sorted(every)] == list(range(len(every)))
    assert places.at(ChunkPlace("a.py", 100, 100)) is places.at(ChunkPlace("z.py", 1, 1)) is None
    assert [places[at].path for at in places.heads().tolist()] == sorted(names)


def test_a_graph_worked_through_in_slices_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = graph()
    monkeypatch.setattr(symbol_graph, "_USES_AT_ONCE", 1)
    monkeypatch.setattr(symbol_graph, "_NODES_AT_ONCE", 1)
    sliced = graph()
    assert [sliced.neighbours(place) for place in sliced.places] == [whole.neighbours(place) for place in whole.places]
    assert len(sliced.packed.targets) == len(whole.packed.targets) > 0
