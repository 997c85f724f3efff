"""Documents in batches: all of them in order, bounded, and the first ones small."""

from hypothesis import given
from hypothesis import strategies as st

from codex.archive import prepare as module
from codex.archive.prepare import batches
from codex.documents import Document


def document(number: int, size: int) -> Document:
    return Document(f"{number}.py", "x" * size, str(number), size)


@given(st.lists(st.sampled_from([0, 1, 100_000, 300_000, 5_000_000]), max_size=40))
def test_every_document_comes_once_in_order_and_no_batch_could_end_sooner(sizes: list[int]) -> None:
    documents = [document(number, size) for number, size in enumerate(sizes)]
    made = list(batches(documents))
    assert [one for batch in made for one in batch] == documents
    assert all(made)
    for batch in made:
        assert sum(one.size for one in batch[:-1]) < module._BATCH_BYTES


def test_batches_grow_from_a_small_one_to_the_largest() -> None:
    made = [sum(one.size for one in batch) for batch in batches(document(at, 50_000) for at in range(400))]
    assert made[:6] == [250_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 4_000_000]


def test_of_empty_files_so_many_are_a_batch() -> None:
    assert [len(batch) for batch in batches(document(at, 0) for at in range(600))] == [512, 88]
