"""Whether a model that is asked about a codebase follows an amendment that stands behind the files.

    appended      === a.py ===  LIMIT = 7  …  === amendment 1: a.py ===  lines 3-9, in place of lines 3-9:  LIMIT = 12
    recomputed    === a.py ===  LIMIT = 12 …
    asked         What is the value of LIMIT in a.py?      LIMIT =

Files are our own, prompts are written by the product's formatters. Each constant is changed in a log of its own;
in the recomputed floor all constants of its files are changed at once, which takes a tenth of the time.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from answers import Ids
from cases_engine import Bench, stopping
from ours import Ours
from report import Row

from codex.documents import Document, document_from
from codex.following.amendments import AmendmentWriter, new_entries
from formatters.blocks import BlockKind
from formatters.context import AmendmentView, CodexView, IdentityView
from formatters.writers import writers
from orchestrator.codices.building import amendment_of, nobodys_turn
from orchestrator.codices.coverages import whole_piece
from orchestrator.codices.known_lines import changed_parts

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("codex", "governor", "orchestrator")
CONSTANT = re.compile(r"^(_?[A-Z][A-Z_]{3,}) = (\d[\d_]*)(?=$|  #)", re.MULTILINE)
CHARACTERS = range(1_500, 6_000)  # of a file
FILES, MOST = 2, 9  # of a floor, and constants that are asked about
CELLS, ANSWER, WHOLE_FILE = 8_192, 12, 600
IDENTITY = IdentityView(name="lorekeep", text="You answer questions about a codebase. Be exact and brief.")
Files = tuple[Document, ...]


@dataclass(frozen=True)
class Constant:
    """One with its file, of which `now` is the text after its change."""

    files: Files
    path: str
    name: str
    old: int
    new: int
    now: Document


def amendments(bench: Bench) -> Iterator[Row]:
    found = {"appended": [0, 0, 0], "recomputed": [0, 0, 0]}
    with stopping(Ours(bench.model, CELLS, threads=bench.threads, drafts=False)) as engine:
        for constant in constants():
            for way, files, log in (
                ("appended", constant.files, amended(engine, constant)),
                ("recomputed", all_changed(constant.files), ()),
            ):
                found[way][verdict(answer(engine, files, log, constant), constant)] += 1
    for way, (new, old, other) in found.items():
        count = new + old + other
        yield Row("amendments", f"{way}: the new value", new, count, "answers", new / count)
        yield Row("amendments", f"{way}: the old value", old, count, "answers", old / count)


# -- the constants


def constants() -> list[Constant]:
    files = [file for package in PACKAGES for file in sources(ROOT / package)]
    floors = [tuple(files[at : at + FILES]) for at in range(0, len(files), FILES)]
    return [one for floor in floors for one in [one for file in floor for one in of_file(floor, file)][:MOST]]


def sources(folder: Path) -> Iterator[Document]:
    for path in sorted(folder.rglob("*.py")):
        found = document_from(str(path.relative_to(ROOT)), path.read_bytes())
        if found is not None and len(found.text) in CHARACTERS and CONSTANT.search(found.text):
            yield found


def of_file(floor: Files, file: Document) -> Iterator[Constant]:
    for place in CONSTANT.finditer(file.text):
        old = int(place[2])
        yield Constant(floor, file.path, place[1], old, other_than(old), with_value(file, place[1], other_than(old)))


def other_than(value: int) -> int:
    """A number of about the same size, with another first digit where it has one or two."""
    return value + 5 if value < 10 else value * 3 // 2 + 1 if value < 100 else value // 10 * 13


def with_value(file: Document, name: str, value: int) -> Document:
    text = re.sub(rf"^({name} = )[\d_]+", rf"\g<1>{value}", file.text, flags=re.MULTILINE)
    changed = document_from(file.path, text.encode())
    assert changed is not None
    return changed


def all_changed(floor: Files) -> Files:
    return tuple(with_all_changed(floor, file) for file in floor)


def with_all_changed(floor: Files, file: Document) -> Document:
    for one in of_file(floor, file):
        file = with_value(file, one.name, one.new)
    return file


# -- a question


def amended(engine: Ours, constant: Constant) -> tuple[AmendmentView, ...]:
    """As the product writes it into the log."""
    base = {file.path: file.digest for file in constant.files}
    texts = {file.digest: file for file in (*constant.files, constant.now)}
    count = lambda text: len(engine.encode([text])[0])  # noqa: E731
    writer = AmendmentWriter(lambda _, digest: texts[digest], count, changed_parts, WHOLE_FILE)
    entries = new_entries(base, (), base | {constant.path: constant.now.digest}, writer)
    return tuple(map(amendment_of, entries))


def answer(engine: Ours, files: Files, log: Sequence[AmendmentView], constant: Constant) -> str:
    codex = CodexView(name="sample", pieces=tuple(map(whole_piece, files)), amendments=tuple(log))
    query = f"What is the value of {constant.name} in {constant.path}?"
    floor, tail = prompt(engine, codex, query, f"{constant.name} = ")
    running = engine.ask(floor, tail, ANSWER, constant.files[0].path)
    running.answer()
    return running.text


def prompt(engine: Ours, codex: CodexView, query: str, begun: str) -> tuple[Ids, Ids]:
    """Each item is tokenised by itself, so that what is before an amendment has the same ids as without it."""
    turn = nobodys_turn(codex, IDENTITY).model_copy(update={"query": query})
    blocks = {kind: [item.text for item in write(turn)] for kind, write in writers().items()}
    floor = engine.encode([*blocks[BlockKind.IDENTITY], *blocks[BlockKind.CODEX]])
    around = "".join(blocks[BlockKind.ENVIRONMENT])
    tail = engine.encode([f"{around}\n### User:\n{query}\n\n### Assistant:\n{begun}"])
    return [token for ids in floor for token in ids], tail[0]


def verdict(text: str, constant: Constant) -> int:
    """0: the new value, 1: the old one, 2: something else."""
    number = re.match(r"\s*(\d[\d_]*)", text)
    said = int(number[1]) if number else None
    return 0 if said == constant.new else 1 if said == constant.old else 2
