"""What each built-in writer says, and that all of them keep the laws of formatters."""

import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from formatters.blocks import ORDER, BlockKind, Item, Prompt
from formatters.context import (
    AmendmentView,
    AttachmentView,
    CodexPiece,
    CodexView,
    EnvironmentView,
    Evidence,
    IdentityView,
    KarmaEntry,
    KarmaView,
    SigilView,
    StateView,
    ToolView,
    TurnContext,
    Turning,
    TurnView,
)
from formatters.registry import builtin, write_prompt
from formatters.testing import (
    gives_the_same_twice,
    ignores_the_order_of_evidence,
    ignores_what_stands_further_right,
    keeps_a_turn_when_it_closes,
    samples,
)
from formatters.writers import Writer

OWNER = SigilView(name="owner", uid=1000, scopes=frozenset({"search", "query"}))


def context(query: str = "Why?", **parts: object) -> TurnContext:
    return TurnContext.model_validate({"identity": IdentityView(name="plain"), "sigil": OWNER, "query": query, **parts})


def _output(program: str, seed: str) -> bytes:
    env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run([sys.executable, "-P", "-c", program], env=env, capture_output=True, check=True).stdout


def prompt(**parts: object) -> Prompt:
    return write_prompt(context(**parts), builtin())


@dataclass(frozen=True)
class Written:
    """A built-in writer as the laws take a formatter."""

    block: BlockKind
    writer: Writer
    name: str = "built-in"

    def inject(self, ctx: Turning, /) -> Iterable[Item]:
        return self.writer(ctx.deps)


@pytest.mark.parametrize("kind", ORDER)
def test_every_builtin_writer_keeps_the_laws(kind: BlockKind) -> None:
    written = Written(kind, builtin().writers[kind])
    for sample in samples():
        gives_the_same_twice(written, sample)
        ignores_what_stands_further_right(written, sample)
        ignores_the_order_of_evidence(written, sample)
        keeps_a_turn_when_it_closes(written, sample)


def test_identity_is_its_text_then_the_tools_by_name_with_sorted_keys() -> None:
    tools = (ToolView(name="b"), ToolView(name="a", parameters_json_schema={"type": "object", "required": []}))
    text = prompt(identity=IdentityView(name="k", text="You keep lore.", tools=tools))[BlockKind.IDENTITY].text
    assert text.startswith("You keep lore.\n\n# Tools\n")
    assert text.endswith(
        '{"description": "", "name": "a", "parameters": {"required": [], "type": "object"}}\n'
        '{"description": "", "name": "b", "parameters": {}}\n\n'
    )


def test_a_file_stands_whole_and_to_the_letter_under_its_path() -> None:
    source = "def f():\n\treturn '=== x ==='  \n\n\n"
    text = prompt(codex=CodexView(name="c", pieces=(CodexPiece(path="a/b.py", text=source),)))[BlockKind.CODEX].text
    assert f"=== a/b.py ===\n{source}\n" in text


def test_a_shortened_file_says_so_in_its_heading() -> None:
    piece = CodexPiece(path="a.py", text="def f(): ...", kind="skeleton")
    assert (
        "=== a.py (skeleton) ===\ndef f(): ...\n\n"
        in prompt(codex=CodexView(name="c", pieces=(piece,)))[BlockKind.CODEX].text
    )


def test_amendments_are_appended_and_leave_what_stood_before() -> None:
    pieces = tuple(CodexPiece(path=f"{name}.py", text=name) for name in "zab")
    log = tuple(AmendmentView(number=number, path="a.py", text=f"edit {number}") for number in range(1, 12))
    texts = [
        prompt(codex=CodexView(name="c", pieces=pieces, amendments=log[:n]))[BlockKind.CODEX].text for n in (0, 1, 11)
    ]
    assert texts[1].startswith(texts[0])
    assert texts[2].startswith(texts[1])
    assert texts[2].endswith("=== amendment 11: a.py ===\nedit 11\n\n")


def test_the_codex_keeps_its_prefix_over_commits_branches_and_generations() -> None:
    pieces = (CodexPiece(path="a.py", text="x"),)
    one = CodexView(name="c", generation=1, branch="main", revision="aaa", pieces=pieces)
    other = CodexView(name="c", generation=2, branch="topic", revision="bbb", pieces=pieces)
    assert prompt(codex=one)[BlockKind.CODEX].digest == prompt(codex=other)[BlockKind.CODEX].digest


def test_without_a_codex_the_block_is_empty() -> None:
    assert prompt()[BlockKind.CODEX].items == ()


def test_environment_tells_levels_the_sigil_and_what_the_client_brought() -> None:
    around = EnvironmentView(
        vram="tight",
        power="on battery",
        available_tools=("b", "a"),
        client_system=("Be brief.",),
        client_tools=(ToolView(name="t"),),
    )
    assert prompt(environment=around)[BlockKind.ENVIRONMENT].text == (
        "# Environment\nGPU memory: tight\nPower: on battery\nSigil: owner (query, search)\n\n"
        "Tools that may be called now: a, b\n\n"
        "# Instructions of the client\nBe brief.\n\n"
        '# Tools of the client\nThey are called in the same way.\n{"description": "", "name": "t", "parameters": {}}\n\n'
    )


def test_karma_stands_under_its_headings_in_their_order() -> None:
    entries = (
        KarmaEntry(heading="Note", text="n"),
        KarmaEntry(heading="Active Constraints", text="one"),
        KarmaEntry(heading="Own Heading", text="o"),
        KarmaEntry(heading="Active Constraints", text="two"),
    )
    text = prompt(karma=KarmaView(entries=entries))[BlockKind.KARMA].text
    assert text == "# Active Constraints\n- one\n- two\n# Note\n- n\n# Own Heading\n- o\n"


def test_artifacts_are_named_and_counted_before_the_question() -> None:
    state = StateView(
        attachments=(AttachmentView(name="a.txt", text="A"), AttachmentView(name="stdin", text="B\n")),
        evidence=(
            Evidence(path="b.py", start=12, end=13, text="two", symbol="f"),
            Evidence(path="b.py", start=2, end=4, text="one"),
            Evidence(path="b.py", start=2, end=4, text="one"),
        ),
    )
    assert prompt(state=state)[BlockKind.STATE].text == (
        "=== attachment 1 of 2: a.txt ===\nA\n\n=== attachment 2 of 2: stdin ===\nB\n\n"
        "2 passages of the codebase, found for this question:\n\n"
        "=== b.py:2-4 ===\none\n\n=== b.py:12-13 f ===\ntwo\n\n"
    )


def test_the_question_is_the_last_content_to_the_letter() -> None:
    for query in ("The access code of vault zebra is", "ends with newline\n", " spaces ", ""):
        written = prompt(query=query, state=StateView(turns=(TurnView(role="user", text="x"),)))
        assert "".join(block.text for block in written.blocks).endswith(query)
        assert written[BlockKind.QUERY].text == query


def test_the_same_prompt_comes_out_of_every_process() -> None:
    program = (
        "from formatters.testing import samples\n"
        "from formatters.registry import builtin, write_prompt\n"
        "print([b.digest for s in samples() for b in write_prompt(s, builtin()).blocks])"
    )
    first, second = (_output(program, seed) for seed in ("1", "2"))
    assert first == second != b""


def test_importing_the_vocabulary_does_not_load_pydantic_ai() -> None:
    program = "import sys, formatters.registry, formatters.testing; sys.exit('pydantic_ai' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_a_codex_that_has_not_changed_is_not_written_again() -> None:
    codex = CodexView(name="c", pieces=tuple(CodexPiece(path=f"{n}.py", text="x = 1\n" * 20) for n in range(3_000)))
    registry = builtin()

    def write(query: str) -> tuple[float, Prompt]:
        ctx = context(query, codex=codex)
        started = time.perf_counter()
        written = write_prompt(ctx, registry)
        return time.perf_counter() - started, written

    _, first = write("one")
    again = [write("two") for _ in range(10)]
    assert all(one[BlockKind.CODEX] is first[BlockKind.CODEX] for _, one in again)
    assert min(took for took, _ in again) < 0.001


def test_every_item_of_a_rich_turn_names_its_node_and_its_source() -> None:
    for sample in samples():
        for block in write_prompt(sample, builtin()).blocks:
            for item in block.items:
                assert item.node, item
                assert item.source, item
