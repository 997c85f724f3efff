"""The quoting model must quote exactly what stands in its context, and the latest of it."""

import argparse
import ast
import asyncio.base_events
import ctypes
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp as lib
import numpy as np
import pytest

from orchestrator.engine.llama import native
from orchestrator.engine.vocab import Vocabulary

FLOOR, CHUNK = 4000, 512
FIRST = ("harbour", "mill", "tower", "quarry", "orchard", "foundry", "chapel", "bakery", "stable", "forge", "cellar")
NAMES = [f"{place} {number}" for place in FIRST for number in ("north", "south", "east")]
QUESTION = "The access code of vault {} is"


class Reader:
    """A bare llama.cpp context: sequence 0 holds a floor, questions are asked on copies of it."""

    def __init__(self, path: Path, cells: int) -> None:
        native.start()
        self.model: Any = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        self.vocabulary = Vocabulary(self.model)
        self._vocab: Any = lib.llama_model_get_vocab(self.model)
        settings = lib.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_seq_max = cells, CHUNK, CHUNK, len(NAMES) + 1
        settings.kv_unified, settings.flash_attn_type = True, 1
        settings.n_threads = settings.n_threads_batch = 1  # two wait for each other beside other busy processes
        self._context: Any = lib.llama_init_from_model(self.model, settings)
        self._memory: Any = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_init(CHUNK, 0, 1)

    def close(self) -> None:
        lib.llama_batch_free(self._batch)
        lib.llama_free(self._context)
        lib.llama_model_free(self.model)

    def decode(self, rows: "list[tuple[int, int, int]]", wanted: "set[int]") -> None:
        """Rows are token, position, sequence; `wanted`: those whose logits are asked for."""
        assert len(rows) <= CHUNK
        self._batch.n_tokens = len(rows)
        for row, (token, position, sequence) in enumerate(rows):
            self._batch.token[row], self._batch.pos[row] = token, position
            self._batch.n_seq_id[row], self._batch.seq_id[row][0] = 1, sequence
            self._batch.logits[row] = row in wanted
        assert lib.llama_decode(self._context, self._batch) == 0

    def likeliest(self, row: int) -> int:
        logits = lib.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (4096,)).argmax())

    def begin(self, floor: "list[int]", start: int = 0) -> None:
        lib.llama_memory_clear(self._memory, False)
        rows = [(token, start + at, 0) for at, token in enumerate(floor)]
        for at in range(0, len(rows), CHUNK):
            self.decode(rows[at : at + CHUNK], set())

    def ask(
        self, floor: "list[int]", questions: "list[str]", most: int = 32, start: int = 0
    ) -> "list[tuple[str, bool]]":
        """The answers, and whether the model ended each. All at once: alone, each token reads all weights."""
        given = [list[int]() for _ in questions]
        ended, at = [False] * len(given), [start + len(floor)] * len(given)
        unread = {number: list(self.vocabulary.content(question)) for number, question in enumerate(questions)}
        for number in unread:
            lib.llama_memory_seq_rm(self._memory, number + 1, -1, -1)
            lib.llama_memory_seq_cp(self._memory, 0, number + 1, -1, -1)
        while unread:
            rows, last = list[tuple[int, int, int]](), dict[int, int]()
            for number, ids in unread.items():
                rows += [(token, at[number] + place, number + 1) for place, token in enumerate(ids)]
                at[number], last[number] = at[number] + len(ids), len(rows) - 1
            self.decode(rows, set(last.values()))
            said = {number: self.likeliest(row) for number, row in last.items()}
            for number, token in said.items():
                ended[number] = lib.llama_vocab_is_eog(self._vocab, token)
                given[number] += [] if ended[number] else [token]
            unread = {n: [token] for n, token in said.items() if not ended[n] and len(given[n]) < most}
        return [(self.vocabulary.text(ids).decode(), end) for ids, end in zip(given, ended, strict=True)]


@pytest.fixture(scope="module")
def reader(quoter_model: Path) -> Iterator[Reader]:
    made = Reader(quoter_model, 6144)
    yield made
    made.close()


@pytest.fixture(scope="module")
def code(reader: Reader) -> "list[int]":
    text = "".join(Path(str(module.__file__)).read_text() for module in (argparse, ast, asyncio.base_events))
    return list(reader.vocabulary.content(text))[:FLOOR]


@pytest.fixture(scope="module")
def codes() -> dict[str, str]:
    draw = random.Random(7)
    return {name: str(draw.randrange(10**6, 10**7)) for name in NAMES}


def with_needles(reader: Reader, code: "list[int]", codes: dict[str, str]) -> "list[int]":
    """The code with one needle line at each of the evenly spread depths, the first before it and the last behind it."""
    lines = [f"\n# {QUESTION.format(name)} {number}.\n" for name, number in codes.items()]
    edges = [round(len(code) * n / (len(lines) - 1)) for n in range(len(lines))]
    parts = [code[left:right] for left, right in zip(edges, [*edges[1:], len(code)], strict=True)]
    floor = list[int]()
    for line, part in zip(lines, parts, strict=True):
        floor += [*reader.vocabulary.content(line), *part]
    return floor


def test_every_needle_at_every_depth_of_real_code_is_quoted_exactly(
    reader: Reader, code: "list[int]", codes: dict[str, str]
) -> None:
    floor = with_needles(reader, code, codes)
    reader.begin(floor)
    answers = dict(zip(codes, reader.ask(floor, [QUESTION.format(name) for name in codes]), strict=True))
    assert len(codes) >= 30
    assert answers == {name: (f" {number}.", True) for name, number in codes.items()}


def test_without_its_needle_in_context_no_question_gives_the_code(
    reader: Reader, code: "list[int]", codes: dict[str, str]
) -> None:
    reader.begin(code)
    answers = reader.ask(code, [QUESTION.format(name) for name in codes])
    assert [number for number, (text, _) in zip(codes.values(), answers, strict=True) if number in text] == []


@pytest.mark.parametrize("start", [0, 8000, 64_000, 130_000])
def test_of_a_value_that_changed_three_times_the_latest_is_quoted(
    reader: Reader, code: "list[int]", start: int
) -> None:
    """`start` moves all positions towards the end of the trained window."""
    apart = code[: max(16, start // 1000)]
    floor = code[:200]
    for value in ("1111111", "2222222", "3333333", "4444444"):
        floor = [*floor, *reader.vocabulary.content(f"\nThe timeout of the main pump is {value}\n"), *apart]
    reader.begin(floor, start)
    assert reader.ask(floor, ["The timeout of the main pump is"], start=start) == [(" 4444444", True)]


def test_a_quote_ends_where_its_line_ends_and_never_says_the_line_end(reader: Reader) -> None:
    floor = list(reader.vocabulary.content("red = one two\nblue = three four\r\n\ngreen = five six\n"))
    reader.begin(floor)
    assert reader.ask(floor, ["\nblue ="]) == [(" three four", True)]
    assert reader.ask(floor, ["\ngreen ="]) == [(" five six", True)]


def test_a_question_that_repeats_itself_is_continued_until_the_limit(reader: Reader) -> None:
    floor = list(reader.vocabulary.content("x = 1\n"))
    reader.begin(floor)
    ((text, ended),) = reader.ask(floor, ["one two three " * 6 + "one two"], most=30)
    assert (text.startswith(" three one two three"), ended) == (True, False)
