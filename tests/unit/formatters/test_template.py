"""The cut of a chat template: where pieces go, what is refused, and all templates that llama.cpp's sources carry.

Run as a program it prints docs/chat-templates.md for the templates of llama.cpp's tree: FILE LLAMA_CPP_FOLDER.
"""

import functools
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from jinja2 import Template

from formatters.blocks import ORDER, Block, BlockKind, InvalidPrompt, Item, Prompt, Role, TemplateRefused
from formatters.registry import builtin, write_prompt
from formatters.sandbox import compiled, rendered
from formatters.template import (
    PLAIN,
    ChatTemplate,
    Literal,
    NoThink,
    Placement,
    Slot,
    Way,
    conversation,
    joined,
    probe,
)
from formatters.testing import samples

U, A, T = Role.USER, Role.ASSISTANT, Role.TOOL
HEAD = tuple(Slot(kind) for kind in ORDER[:4])
CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}<assistant>"
CONCATENATING = "{% for m in messages %}{{ m.content }}{% endfor %}"
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "chat-templates.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def test_a_prompt_without_turns_is_one_system_message_and_one_question() -> None:
    assert ChatTemplate(CHATML).layout() == (
        Literal("<system>", BlockKind.IDENTITY),
        *HEAD,
        Literal("</>\n<user>", BlockKind.STATE),
        Slot(BlockKind.STATE, 0),
        Slot(BlockKind.QUERY),
        Literal("</>\n<assistant>", BlockKind.QUERY),
    )


def test_turns_and_the_running_ones_have_slots_of_their_own() -> None:
    layout = ChatTemplate(CHATML).layout((U, A), running=(A, T))
    assert [piece for piece in layout[6:] if isinstance(piece, Slot)] == [
        Slot(BlockKind.STATE, 0),
        Slot(BlockKind.STATE, 1),
        Slot(BlockKind.STATE, 2),
        Slot(BlockKind.QUERY, 0),
        Slot(BlockKind.QUERY, 1),
        Slot(BlockKind.QUERY, 2),
    ]
    assert layout[-4:-1] == (
        Slot(BlockKind.QUERY, 1),
        Literal("</>\n<user>", BlockKind.QUERY),
        Slot(BlockKind.QUERY, 2),
    )


def test_a_running_turn_cannot_end_with_the_assistant() -> None:
    with pytest.raises(InvalidPrompt, match="waits for an answer"):
        ChatTemplate(CHATML).layout((), running=(A,))


@pytest.mark.parametrize("turns", [(U, U), (A,), (A, A, U), (T, U, A, T), (U, A, U), ()])
@pytest.mark.parametrize("way", [Way.SYSTEM, Way.FIRST_USER])
def test_whoever_spoke_the_template_sees_user_and_assistant_by_turns(turns: tuple[Role, ...], way: Way) -> None:
    roles = [said.role for said in conversation(turns, (), way)]
    spoken = roles[1:] if way is Way.SYSTEM else roles
    assert spoken == ["user", "assistant"] * (len(spoken) // 2) + ["user"]
    slots = [part for said in conversation(turns, (), way) for part in said.parts if isinstance(part, Slot)]
    states = [Slot(BlockKind.STATE, index) for index in range(len(turns) + 1)]
    assert slots == [*HEAD, *states, Slot(BlockKind.QUERY)]


def test_turns_of_one_side_and_answers_without_an_end_mark_are_parted_by_an_empty_line() -> None:
    layout = ChatTemplate(CONCATENATING).layout((U, A, U))
    assert layout[4:] == (
        Slot(BlockKind.STATE, 0),
        Slot(BlockKind.STATE, 1),
        Literal("\n\n", BlockKind.STATE),
        Slot(BlockKind.STATE, 2),
        Literal("\n\n", BlockKind.STATE),
        Slot(BlockKind.STATE, 3),
        Slot(BlockKind.QUERY),
    )


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "no chat template"),
        ("{% for %}", "does not compile"),
        ("{{ raise_exception('not with me') }}", "not with me"),
        ("{{ nobody + 'x' }}", "'nobody' is undefined"),
        ("{{ none + 'x' }}", "unsupported operand"),
        ("{{ 1 // 0 }}", "division"),
        ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", "loses or changes identity"),
        ("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}", "repeats identity"),
        ("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", "moves state"),
        ("{% for m in messages %}{{ m.content | tojson }}{% endfor %}", "loses or changes identity"),
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "loses or changes identity"),
        ("{% for m in messages %}{{ m.content.split('\n') | join(' ') }}{% endfor %}", "loses or changes"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "refuses"),
    ],
)
def test_a_template_that_cannot_be_cut_is_refused_with_its_reason(source: str, why: str) -> None:
    with pytest.raises(TemplateRefused, match=why):
        ChatTemplate(source).layout((U, A))
    placement = probe(ChatTemplate(source))
    assert placement.way is Way.NONE
    assert placement.reason


def test_a_template_that_counts_its_messages_at_the_top_would_lose_the_prefix_and_is_not_used() -> None:
    placement = probe(ChatTemplate("{{ messages | length }}" + CHATML))
    assert placement == Placement(Way.NONE, "the chat template changes the head of a prompt with each turn")


def test_a_template_without_a_system_role_gets_the_head_in_the_first_user_message() -> None:
    refusal = "{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    source = "{% for m in messages %}" + refusal + "[{{ m.content }}]{% endfor %}"
    placement = probe(ChatTemplate(source))
    assert (placement.way, placement.reason) == (Way.FIRST_USER, "the chat template refuses: no system")
    layout = ChatTemplate(source).layout((U, A), way=Way.FIRST_USER)
    assert layout[:6] == (Literal("[", BlockKind.IDENTITY), *HEAD, Slot(BlockKind.STATE, 0))


def test_trimming_does_not_lose_a_slot() -> None:
    trimming = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}"
    assert probe(ChatTemplate(trimming)).way is Way.SYSTEM


def test_the_helpers_that_templates_expect_are_there() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% continue %}"
        "{% endif %}{% set ns.n = ns.n + 1 %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
        "{{ {'b': '<é>', 'a': ns.n} | tojson }}{{ strftime_now('%Y-%m-%d') }}{{ eos_token }}"
    )
    template = ChatTemplate(source, eos="</s>")
    assert template.layout()[-1] == Literal('{"b": "<é>", "a": 1}2024-07-26</s>', BlockKind.QUERY)


def test_the_date_in_a_template_does_not_move_with_the_clock() -> None:
    dated = "{{ strftime_now('%d %b %Y') }}" + CHATML
    assert ChatTemplate(dated).layout()[0] == Literal("26 Jul 2024<system>", BlockKind.IDENTITY)


@pytest.mark.parametrize(
    "source", [CHATML, "{{ bos_token }}" + CHATML, "{% for m in messages %}{{ m.content }}{% endfor %}"]
)
@pytest.mark.parametrize("way", list(Way))
def test_a_model_that_wants_its_first_token_gets_it_exactly_once(source: str, way: Way) -> None:
    first = ChatTemplate(source, bos="<s>", add_bos=True).layout(way=way)[0]
    assert isinstance(first, Literal)
    assert first.text.count("<s>") == 1
    assert first.text.startswith("<s>")


def test_asking_not_to_think_is_known_by_what_it_would_cost() -> None:
    switch = "{{ '/no_think' if enable_thinking is false }}"
    assert probe(ChatTemplate(CHATML)).no_think is NoThink.NOTHING
    assert probe(ChatTemplate(CHATML + switch)).no_think is NoThink.TAIL
    assert probe(ChatTemplate(switch + CHATML)).no_think is NoThink.FLOOR


def test_the_plain_lines_end_where_an_answer_begins() -> None:
    items = {
        BlockKind.IDENTITY: (Item("1", "You are X.\n"),),
        BlockKind.STATE: (Item("9", "Hi.", role=U, turn=0), Item("9", "Ho.", role=A, turn=1)),
        BlockKind.QUERY: (Item("1", "Why?", role=U),),
    }
    prompt = Prompt(tuple(Block(kind, items.get(kind, ())) for kind in ORDER))
    assert joined(ChatTemplate("").layout(prompt.turns, way=Way.NONE), prompt) == (
        "You are X.\n\n### User:\nHi.\n\n### Assistant:\nHo.\n\n### User:\nWhy?\n\n### Assistant:\n"
    )


def test_a_layout_is_computed_once_and_holds_nothing_of_its_sentinels() -> None:
    template = ChatTemplate(CHATML)
    assert template.layout((U, A)) is template.layout([U, A])
    assert template.layout((U, A)) == ChatTemplate(CHATML).layout((U, A))


@functools.cache
def compiled_once(source: str) -> Template:
    return compiled(source)


@pytest.fixture(scope="module", autouse=True)
def templates_and_their_oracle_compile_a_source_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("formatters.template.compiled", compiled_once)
        yield


@functools.cache
def templates_of(llama_cpp: Path) -> dict[str, ChatTemplate]:
    """With what they have compiled: a large one takes a tenth of a second."""
    files = sorted((llama_cpp / "models" / "templates").glob("*.jinja"))
    return {file.stem: ChatTemplate(file.read_text(encoding="utf-8"), bos="<s>", eos="</s>") for file in files}


def table(llama_cpp: Path) -> str:
    """The table of docs/chat-templates.md."""
    found = {name: placement_of(template) for name, template in templates_of(llama_cpp).items()}
    ways = ", ".join(f"{sum(one.way is way for one in found.values())} go `{way}`" for way in Way)
    kept = sum(one.keeps_answers for one in found.values())
    head = f"{len(found)} templates: {ways}; {kept} lead to a closed answer as to a running one.\n\n"
    rows = [
        f"| {name} | {one.way} | {'yes' if one.keeps_answers else 'no'} | {one.no_think} | {one.reason} |\n"
        for name, one in found.items()
    ]
    columns = "| template | way | closed as running | no-think changes | why not `system` |\n|---|---|---|---|---|\n"
    return head + columns + "".join(rows) + calls_table(found)


def calls_table(found: dict[str, Placement]) -> str:
    own = sum(not one.calls.why and one.way is not Way.NONE for one in found.values())
    results = sum(one.results for one in found.values())
    rows = [
        f"| {name} | {one.calls.family} | {f'`{example(one)}`' if one.calls.family != 'plain' else ''} "
        f"| {'tool' if one.results else 'user'} | {one.calls.why} |\n"
        for name, one in found.items()
    ]
    head = f"\n{own} of them have calls in a form of their own; {results} have messages for results.\n\n"
    columns = "| template | calls | a call | results | why not its own form |\n|---|---|---|---|---|\n"
    return head + columns + "".join(rows)


def example(placement: Placement) -> str:
    return placement.calls.example.replace("\n", "\\n").replace("|", "\\|")


def test_every_template_of_llama_cpp_goes_a_known_way_and_the_document_says_which(llama_sources: Path) -> None:
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    documented, _, _ = rest.partition(END)
    assert before
    assert documented == table(llama_sources), f"write it anew: .venv/bin/python {__file__} {llama_sources}"


@functools.cache
def placement_of(template: ChatTemplate) -> Placement:
    return probe(template)


def reference(template: ChatTemplate, prompt: Prompt, way: Way) -> str:
    """The whole prompt as the template itself would write it, contents and all: the oracle for `joined`."""

    def text_of(part: Slot | str) -> str:
        if isinstance(part, str):
            return part
        return "".join(item.text for item in prompt.at(part.block, part.index))

    layouts = conversation(prompt.turns, prompt.running, way)
    messages = [{"role": one.role, "content": "".join(map(text_of, one.parts))} for one in layouts]
    tokens = {"bos_token": template.bos, "eos_token": template.eos}
    return rendered(compiled_once(PLAIN if way is Way.NONE else template.source), messages, tokens)


def test_cut_and_joined_every_template_gives_what_it_would_have_written_itself(llama_sources: Path) -> None:
    registry = builtin()
    for name, template in templates_of(llama_sources).items():
        way = placement_of(template).way
        for sample in samples():
            if sample.running and not placement_of(template).keeps_answers:
                continue  # what led to a call stays as it was; the template writes it otherwise now
            prompt = write_prompt(sample, registry)
            layout = template.layout(prompt.turns, running=prompt.running, way=way)
            # Up to white space: templates trim contents, which the cut leaves as they are.
            ours, own = joined(layout, prompt).split(), reference(template, prompt, way).split()
            assert "".join(ours) == "".join(own), name


def test_a_closed_turn_stays_as_it_is_under_every_template(llama_sources: Path) -> None:
    for name, template in templates_of(llama_sources).items():
        way = placement_of(template).way
        layouts = [template.layout((U, A) * turns, way=way) for turns in (1, 2, 3)]
        heads = {layout[: layout.index(Slot(BlockKind.STATE, 1)) + 1] for layout in layouts}
        assert len(heads) == 1, name


def test_a_running_turn_only_grows_under_every_template(llama_sources: Path) -> None:
    for name, template in templates_of(llama_sources).items():
        placement = placement_of(template)
        grown = [(), (A, T), (A, T, A, T), (A, T, A, T, A, T, T)]
        layouts = [
            template.layout((U, A), running=running, way=placement.way, results=placement.results) for running in grown
        ]
        for before, after in pairwise(layouts):
            assert before == after[: len(before)], name


def test_calls_and_results_are_cut_where_the_template_has_them(llama_sources: Path) -> None:
    template = templates_of(llama_sources)["Qwen-Qwen2.5-7B-Instruct"]
    layout = template.layout(running=(A, T, T), results=True)
    assert [piece.text if isinstance(piece, Literal) else piece.index for piece in layout[-7:]] == [
        "<|im_end|>\n<|im_start|>assistant\n",
        1,
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n",
        2,
        "\n</tool_response>\n<tool_response>\n",
        3,
        "\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    ]


def test_a_result_before_any_answer_is_the_users(llama_sources: Path) -> None:
    template = templates_of(llama_sources)["Qwen-Qwen2.5-7B-Instruct"]
    assert template.layout((T, A), results=True) == template.layout((U, A), results=True)


def write_document(llama_cpp: Path) -> None:
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(before + BEGIN + table(llama_cpp) + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    write_document(Path(sys.argv[1]))
