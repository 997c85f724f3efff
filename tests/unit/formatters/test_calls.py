"""The form of calls, read off chat templates: those of llama.cpp's sources, and small ones that refuse."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from formatters.blocks import TemplateRefused
from formatters.calls import PLAIN_CALLS, CallFormat, Render, read_calls
from formatters.sandbox import compiled, rendered

CHATML = "{% for m in messages %}<{{ m.role }}>{{ m.content }}CALLS</>{% endfor %}"
HERMES = "{% for c in m.tool_calls %}<call>{{ c.function | tojson }}</call>{% endfor %}"


@cache
def render_of(source: str) -> Render:
    template = compiled(source)
    return lambda messages: rendered(template, messages, {"bos_token": "<s>", "eos_token": "</s>"}, opening=False)


def form_of(source: str) -> CallFormat:
    return read_calls(render_of(source))[0]


@pytest.mark.parametrize(
    ("template", "family", "text"),
    [
        (
            "Qwen-Qwen2.5-7B-Instruct",
            "hermes",
            '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>\n'
            '<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call>',
        ),
        (
            "mistralai-Mistral-Nemo-Instruct-2407",
            "mistral",
            '[TOOL_CALLS][{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]',
        ),
        (
            "unsloth-mistral-Devstral-Small-2507",
            "mistral",
            "[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]b[ARGS]{}",
        ),
        (
            "deepseek-ai-DeepSeek-V3.1",
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>a<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
            "<｜tool▁call▁begin｜>b<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ),
    ],
)
def test_known_families_are_read_as_they_are(llama_sources: Path, template: str, family: str, text: str) -> None:
    source = (llama_sources / "models" / "templates" / f"{template}.jinja").read_text(encoding="utf-8")
    form = form_of(source)
    assert (form.family, form.written([("a", "{}"), ("b", "{}")])) == (family, text)


def test_what_a_form_writes_is_what_the_template_itself_writes(llama_sources: Path) -> None:
    read = 0
    for file in sorted((llama_sources / "models" / "templates").glob("*.jinja")):
        form, sample = read_calls(render_of(file.read_text(encoding="utf-8")))
        if form.why:
            continue
        read += 1
        assert sample is not None
        words: Any = ["a", "b"] if form.style is None else "a, b"  # Gemma writes what is in a list in its own way too
        calls = [("look_up", {"path": "src/a b.py"}), ("find", {"most": 3, "words": words})]
        for made in (calls[:1], calls[1:], calls) if form.between else (calls[:1], calls[1:]):
            text = spread(written_by(render_of(file.read_text(encoding="utf-8")), made))
            assert spread(form.written([(name, json.dumps(given)) for name, given in made])) in text, file.stem
        assert form.begin.startswith(form.trigger), file.stem
    assert read > 45


def written_by(render: Render, made: list[tuple[str, dict[str, Any]]]) -> str:
    """Without the numbers of calls, which a model makes up."""
    for as_text in (False, True):
        calls = [
            {
                "id": f"abcdefgh{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(given) if as_text else given},
            }
            for number, (name, given) in enumerate(made)
        ]
        messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "", "tool_calls": calls}]
        try:
            return re.sub(r', "id": "abcdefgh."|\[CALL_ID\]abcdefgh.', "", render(messages))
        except TemplateRefused:
            continue
    raise AssertionError


def spread(text: str) -> str:
    """Templates indent JSON as they like, and write strings of Python with the one quote or the other."""
    return re.sub(r"\s+", "", text).replace("'", '"')


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ("", "the template has no calls"),
        ("{{ raise_exception('no tools') if m.tool_calls }}", "the chat template refuses: no tools"),
        (
            "{% for c in m.tool_calls %}{{ c.function.name }}(qkey=1){% endfor %}",
            "arguments are written in another way",
        ),
        ("{% for c in m.tool_calls %}{{ c.id }}" + HERMES + "{% endfor %}", "a call has a number of its own"),
        (
            "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}",
            "nothing says where a call begins",
        ),
    ],
)
def test_another_template_gets_the_plain_form_and_the_reason(calls: str, why: str) -> None:
    form = form_of(CHATML.replace("CALLS", calls))
    assert form.why == why
    assert form.written([("a", "{}")]) == PLAIN_CALLS.written([("a", "{}")])


def test_a_template_that_changes_answers_gets_the_plain_form() -> None:
    assert form_of("{% for m in messages %}{{ m.content | upper }}{% endfor %}").why == "the template changes answers"


def test_a_template_that_takes_one_call_at_most_makes_one() -> None:
    one = "{{ raise_exception('one') if m.tool_calls and m.tool_calls | length > 1 }}" + HERMES
    form = form_of(CHATML.replace("CALLS", one))
    assert (form.begin, form.end, form.between) == ('<call>{"name": "', "}</call>", "")
