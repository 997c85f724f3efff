"""A model that calls the daemon's own tools: here the one that quotes, as a user's model with a chat template of its own.

It makes a call by quoting one from a file of the codex, with `tool_choice` left alone. From the beginning of the call on it
is bound to the tools that the floor tells of.
"""

import json

import pytest
from support.house import codebase, living, question, reply, until

from orchestrator.engine.builtin import quoter, shape

SAID = "{{ message['content'] }}{% if not loop.last %}\n{% endif %}"
FORMS = {
    "hermes": ('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>"),
    "mistral": ('[TOOL_CALLS][{"name": "', '", "arguments": ', "}]"),
    "llama3": ('{"name": "', '", "parameters": ', "}"),
}


def template(begin, before, end):
    """A chat template that writes one call at most, in this form."""
    made = f"{begin}{{{{ call.function.name }}}}{before}{{{{ call.function.arguments | tojson }}}}{end}"
    refused = "{% if message.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}"
    calls = refused + "{% set call = message.tool_calls[0] %}" + made
    calls = "{% if message.tool_calls is defined and message.tool_calls %}" + calls + "{% endif %}"
    return "{% for message in messages %}" + calls + SAID + "{% endfor %}"


@pytest.fixture(scope="module", params=FORMS)
def house(request, models, tmp_path_factory):
    """Its floor holds a file that says how to find the code: by a call, in the template's form."""
    begin, before, end = form = FORMS[request.param]
    path, vocabulary = tmp_path_factory.mktemp("model") / "quoting.gguf", shape.tokens()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "TEMPLATE", template(*form))
        shape.write(path, quoter.SHAPE, vocabulary, quoter.tensors(vocabulary))
    with living(models, model=str(path), environment={"LORE_MODEL__CONTEXT": "16384"}) as daemon:
        folder = codebase(daemon.folder / "vaults")
        call = f'{begin}read_file{before}{{"path": "steps.py", "start": 5, "end": 6}}{end}'
        (folder / "ways.txt").write_text(f"{question('heron')}{call}\n")
        assert daemon.lore("load", folder, "--wait").returncode == 0
        # The calls of answers that come before the engine has prepared the tools are not bound.
        until(lambda: not asked(daemon)["choices"][0]["message"]["content"].startswith(begin.split()[0]))
        yield daemon, form


def asked(daemon, **options):
    body = {"model": "lore/vaults", "messages": [{"role": "user", "content": question("heron")}], "temperature": 0}
    return reply(daemon, "/v1/chat/completions", {**body, "max_tokens": 120, **options})


def test_a_call_of_our_tool_is_carried_out_and_the_client_sees_the_answer_alone(house):
    daemon, (begin, before, _) = house
    answer = asked(daemon, lore={"session": "heron"})
    (choice,) = answer["choices"]
    assert choice["message"].get("tool_calls") is None
    turns = reply(daemon, "/v1/sessions/heron")["session"]["turns"]
    assert [turn["role"] for turn in turns[:3]] == ["user", "assistant", "tool"]
    assert turns[1]["text"].startswith(f"{begin}read_file{before}")
    assert json.loads(turns[1]["text"].partition(before)[2].partition("}")[0] + "}")["path"] == "steps.py"
    assert turns[2]["text"].startswith("=== steps.py:5-6 ===\n5 def step_1(value):\n6     return value + 1\n")
    assert answer["usage"]["completion_tokens"] <= 120


def test_the_prompt_shows_one_form_of_a_call(house):
    daemon, (begin, *_) = house
    tool = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object", "properties": {}}}}
    for tools in ({}, {"tools": [tool]}):
        messages = [{"role": "user", "content": question("heron")}]
        body = {"model": "lore/vaults", "messages": messages, **tools, "prompt": True}
        prompt = reply(daemon, "/v1/plan", body)["text"]
        assert prompt.count("To call a tool, ") == prompt.count(f"{begin}TOOL") == 1
        assert ("They are called in the same way." in prompt) is bool(tools)
