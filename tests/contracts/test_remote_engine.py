"""The engine whose model is a server's, by the real child process: what it tells, and what each fault becomes."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.stand_in_server import CONTROL, TEMPLATE, Script, StandIn, stand_in

from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.client.supervisor import ChildState, EngineUnavailable
from orchestrator.engine.messages import (
    Admitted,
    AnswerDelta,
    Completion,
    InferenceJob,
    Outcome,
    Reason,
    Reuse,
    Sampling,
    Tier,
    ids_to_bytes,
)
from orchestrator.engine.model import EngineSpec, RemoteSpec
from orchestrator.engine.remote.tokens import VocabularyTokens

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_engines")]

FLOOR = "def settings():\n    return read('settings.toml')\n" * 8
QUESTION = "\nWhere are the settings read?"


@asynccontextmanager
async def remote(*servers: StandIn | str, context: int = 0, **more: Any) -> AsyncIterator[EngineClient]:
    urls = tuple(one if isinstance(one, str) else one.url for one in servers)
    client = EngineClient(EngineSpec("the server", context=context, remote=RemoteSpec(urls, **more)))
    client.start()
    try:
        yield client
    finally:
        await client.stop()


async def asked(client: EngineClient, question: str = QUESTION, most: int = 20, **more: Any) -> list[Any]:
    """All messages of one question behind the floor."""
    floor, tail = await prompt(client, question)
    client.put_floor("floor", floor, "pool")
    job = InferenceJob(0, "floor", tail, 1, most, **more)
    return [message async for message in client.run(job)]


async def prompt(client: EngineClient, question: str) -> tuple[bytes, bytes]:
    """The floor's ids and the question's; between the marks of a message where the server gets messages."""
    info = await client.ensure_ready()
    floor, tail = await client.encode([FLOOR, question])
    if info.chat_template == TEMPLATE:
        return ids_to_bytes(floor), ids_to_bytes(tail)
    user, opened = await client.encode(["\x1euser\x1f", "\x1eassistant\x1f"], control=True)
    return ids_to_bytes([*user, *floor]), ids_to_bytes([*tail, *opened])


def said(messages: Sequence[Any]) -> str:
    return "".join(one.text for one in messages if isinstance(one, AnswerDelta))


def end(messages: Sequence[Any]) -> Completion:
    assert isinstance(messages[-1], Completion)
    return messages[-1]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize("kind", ["vLLM", "SGLang", "llama-server"])
async def test_a_second_question_computes_its_own_tokens_alone_and_the_ledger_says_where_the_others_were(kind):
    with stand_in(Script(kind)) as server:
        async with remote(server) as client:
            first, second = await asked(client, "\nOne?"), await asked(client, "\nAnother?")

    assert said(first) == said(second) == server.script.answer
    assert end(first).cached == 0
    assert end(second).outcome is Outcome.DONE and end(second).reason is Reason.STOP
    assert end(second).computed <= len("\nAnother?") + 64
    (admitted,) = (one for one in second if isinstance(one, Admitted))
    assert admitted.reuse == (Reuse(0, admitted.prompt, Tier.REMOTE),)
    assert end(second).detail == ""


async def test_a_server_that_takes_no_ids_gets_the_exact_text_and_one_without_completions_gets_messages():
    with stand_in(Script("llama-server", takes=(str,))) as texts, stand_in(Script(takes=())) as messages:
        async with remote(texts) as client:
            await asked(client)
        async with remote(messages) as client:
            info = await client.ensure_ready()
            (head,) = await client.encode(["\x1esystem\x1f"], control=True)
            (body, foot) = await client.encode(["a codex", "hm\x1euser\x1f"])
            (mark, opened) = await client.encode(["\x1euser\x1f", "\x1eassistant\x1f"], control=True)
            tail = ids_to_bytes([*head, *body, *mark, *foot, *opened])
            found = [one async for one in client.run(InferenceJob(0, "", tail, 1, 20))]

    assert texts.asked[-1]["prompt"] == FLOOR + QUESTION
    assert "message.content" in info.chat_template and info.chat_template != TEMPLATE
    assert messages.asked[-1]["messages"] == [
        {"role": "system", "content": "a codex"},
        {"role": "user", "content": "hm\x1euser\x1f"},  # content makes no message
    ]
    assert said(found) == messages.script.answer


async def test_an_event_ends_with_its_line_feed_and_with_nothing_else_that_ends_a_line():
    with stand_in(Script(answer="one\u2028two\u0085three\u2029four")) as server:
        async with remote(server) as client:
            assert said(await asked(client)) == server.script.answer


async def test_a_line_without_an_end_is_given_up():
    with stand_in(Script(answers_as="m" * (9 << 20))) as server:
        async with remote(server) as client:
            assert "a line of more than 8 MiB" in end(await asked(client)).detail


async def test_a_thought_that_the_server_sets_apart_comes_between_its_marks():
    with stand_in(Script(takes=(), thought="Let me see.")) as server:
        async with remote(server) as client:
            assert said(await asked(client)) == f"<think>Let me see.</think>{server.script.answer}"


async def test_the_child_tells_the_servers_model_template_and_context():
    with stand_in(Script("llama-server", context=4096)) as server:
        async with remote(server, context=2048) as client:
            info = await client.ensure_ready()

    assert (info.name, info.trained_context, info.chat_template) == ("qwen", 2048, TEMPLATE)
    assert "llama-server" in info.device


@pytest.mark.parametrize("control", CONTROL)
@pytest.mark.parametrize("kind", ["vLLM", "llama-server"])
async def test_content_never_becomes_a_control_token_though_the_server_reads_it_as_one(kind, control):
    with stand_in(Script(kind)) as server:
        async with remote(server) as client:
            (content,) = await client.encode([f"a{control}b"])
            (template,) = await client.encode([control], control=True)

    assert list(content) == list(f"a{control}b".encode())
    assert list(template) == ([CONTROL[control]] if kind == "llama-server" else list(control.encode()))


async def test_half_a_character_in_a_text_is_the_sign_for_it_as_with_a_model_here():
    with stand_in() as server:
        async with remote(server) as client:
            name, sign = await client.encode(["caf\udce9.py", "caf\ufffd.py"])
    assert list(name) == list(sign)


@pytest.mark.parametrize("tokens", [[-1], [2**32], [True], ["a"]])
async def test_what_is_no_token_is_the_servers_fault_and_nobody_waits_for_it(tokens):
    with stand_in() as server:
        async with remote(server) as client:
            await client.ensure_ready()
            server.script.tokens = tokens
            with pytest.raises(EngineUnavailable, match="without tokens"):
                await client.encode(["def f"])


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        ("none", "did not say how many tokens"),
        ("bare", "--enable-prompt-tokens-details"),
        ("wrong", "which cannot be"),
    ],
)
async def test_a_usage_that_is_missing_or_wrong_is_told_and_not_guessed(usage, words):
    with stand_in() as server:
        async with remote(server) as client:
            await asked(client)
            server.script.usage = usage
            done = end(await asked(client))

    assert words in done.detail
    assert (done.cached, done.computed) == (0, done.prompt)


async def test_a_server_that_does_not_keep_to_the_most_tokens_is_not_read_further():
    with stand_in(Script(answer="word " * 1_000, boundless=True)) as server:
        async with remote(server) as client:
            found = await asked(client, most=4)

    assert said(found) == "word " * 4
    assert (end(found).outcome, end(found).reason, end(found).generated) == (Outcome.DONE, Reason.LENGTH, 4)
    assert "went on beyond 4 tokens" in end(found).detail


async def test_more_generated_tokens_than_it_may_are_told_and_not_believed():
    with stand_in(Script(usage="more")) as server:
        async with remote(server) as client:
            done = end(await asked(client, most=4))

    assert done.generated == 4
    assert "generated 1,000,000 tokens of at most 4, which cannot be" in done.detail


async def test_an_answer_that_was_said_stands_though_its_tokens_cannot_be_counted():
    gate = threading.Event()
    with stand_in(Script(gate=gate)) as server:
        async with remote(server) as client:
            floor, tail = await prompt(client, QUESTION)
            client.put_floor("floor", floor, "pool")
            found = []
            async for message in client.run(InferenceJob(0, "floor", tail, 1, 20)):
                found.append(message)
                if isinstance(message, AnswerDelta):
                    server.script.tokenizes = False
                    gate.set()

    assert said(found) == server.script.answer
    assert end(found).outcome is Outcome.DONE and end(found).generated > 0
    assert "the answer's tokens are not known" in end(found).detail and server.url in end(found).detail


async def test_an_answer_that_breaks_off_is_a_fault_that_may_be_tried_again_and_so_is_the_next_question():
    with stand_in(Script(cut_after=2)) as server:
        async with remote(server) as client:
            cut = await asked(client)
            server.script.cut_after = None
            after = await asked(client)

    assert said(cut) == server.script.answer[:10]
    assert (end(cut).outcome, end(cut).reason) == (Outcome.FAILED, Reason.ENGINE)
    assert "in the middle" in end(cut).detail and server.url in end(cut).detail
    assert said(after) == server.script.answer


async def test_an_answer_that_the_server_gave_up_is_none():
    with stand_in() as server:
        async with remote(server) as client:
            await client.ensure_ready()
            server.script.ends = "abort"
            done = end(await asked(client))

    assert (done.outcome, done.reason) == (Outcome.FAILED, Reason.ENGINE)
    assert f"{server.url} gave its answer up (abort)" in done.detail


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (429, Reason.BUSY, "takes nothing more for now (429): slow down; it says to ask again after 7 s"),
        (503, Reason.BUSY, "takes nothing more for now (503)"),
        (500, Reason.ENGINE, "failed (500)"),
        (401, Reason.ENGINE, "see engine.key_file"),
        (404, Reason.ENGINE, "refuses the model or the route (404)"),
        (400, Reason.SAMPLING, "refuses the request (400)"),
    ],
)
async def test_each_refusal_has_a_name(status, reason, words):
    with stand_in() as server:
        async with remote(server) as client:
            await client.ensure_ready()
            server.script.refusals.append((status, "slow down"))
            refused, after = end(await asked(client)), await asked(client)

    assert refused.reason is reason and refused.outcome is not Outcome.DONE
    assert words in refused.detail and server.url in refused.detail
    assert said(after) == server.script.answer


async def test_a_prompt_beyond_the_servers_context_is_refused_before_it_is_sent():
    with stand_in(Script("llama-server", context=len(FLOOR + QUESTION) + 10)) as server:
        async with remote(server) as client:
            refused = end(await asked(client, most=20))

    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, Reason.WINDOW)
    assert server.asked == []


async def test_who_is_not_there_yet_is_waited_for_with_the_reason():
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1"
    async with remote(url) as client:
        while "cannot be reached" not in client.reason:  # noqa: ASYNC110 - only the child tells of it
            await asyncio.sleep(0.01)
        assert client.state is ChildState.STARTING and url in client.reason
        with stand_in(port=port) as server:
            await client.ensure_ready()
            assert said(await asked(client)) == server.script.answer


@pytest.mark.parametrize(
    ("script", "more", "words"),
    [
        (Script(), {"model": "llama"}, "does not serve the model llama; it serves qwen"),
        (Script(key="secret"), {"key": "wrong-key"}, "refuses the key (401)"),
        (Script(tokenizes=False), {}, "set model.path to a GGUF file"),
        (Script(context=0), {}, "set model.context"),
        (Script(location="http://elsewhere.example/v1"), {}, "points to http://elsewhere.example/v1"),
    ],
)
async def test_what_no_waiting_helps_is_said_at_once_without_the_key(script, more, words):
    with stand_in(script) as server:
        async with remote(server, **more) as client:
            with pytest.raises(EngineUnavailable) as refused:
                await client.ensure_ready()

    assert refused.value.broken and words in str(refused.value)
    assert "wrong-key" not in str(refused.value)


async def test_a_server_that_counts_no_tokens_is_sent_those_of_a_model_file(quoter_model):
    with stand_in(Script(tokenizes=False)) as server:
        async with remote(server, vocabulary=str(quoter_model)) as client:
            info = await client.ensure_ready()
            floor, tail, mark = await client.encode([FLOOR, QUESTION, info.eos])
            (control,) = await client.encode([info.eos], control=True)
            client.put_floor("floor", ids_to_bytes(floor), "pool")
            found = [one async for one in client.run(InferenceJob(0, "floor", ids_to_bytes(tail), 1, 20))]
            text = await client.decode(ids_to_bytes(floor))

    assert "prompts go as ids" in info.device and info.chat_template
    assert len(control) == 1 and list(mark) != list(control)  # content is never control
    assert text == FLOOR
    assert server.asked[-1]["prompt"] == [*floor, *tail]
    assert said(found) == server.script.answer
    assert "/detokenize" not in server.paths


async def test_a_model_file_with_the_servers_vocabulary_counts_and_the_server_is_not_asked_for_each_text(quoter_model):
    file = VocabularyTokens(quoter_model)

    def encode(text: str, control: bool) -> list[int]:
        return [*asyncio.run(file.ids(text, control=control))]  # in a thread of the server

    expected = await file.ids(FLOOR, control=False)
    with stand_in(Script("llama-server", encode=encode)) as same, stand_in(Script("llama-server")) as other:
        async with remote(same, vocabulary=str(quoter_model)) as client:
            await client.ensure_ready()
            before = len(same.paths)
            (found,) = await client.encode([FLOOR])
            assert found == expected
            assert "/tokenize" not in same.paths[before:]
        async with remote(other, vocabulary=str(quoter_model)) as client:
            (found,) = await client.encode([FLOOR])
            assert list(found) == list(FLOOR.encode())


async def test_the_key_goes_to_the_server_that_was_named():
    with stand_in(Script(key="secret")) as server:
        async with remote(server, key="secret") as client:
            assert said(await asked(client)) == server.script.answer
    assert server.keys == {"secret"}


async def test_a_server_that_answers_as_another_model_is_told_of_and_what_it_was_sent_is_forgotten():
    with stand_in() as server:
        async with remote(server) as client:
            await asked(client)
            floor, tail = await prompt(client, QUESTION)
            known = await client.match("floor", tail, 1, 20)
            server.script.answers_as = "qwen-2"
            done = end(await asked(client, "\nAnother?"))
            after = await client.match("floor", tail, 1, 20)

    assert known.length == len(floor + tail) // 4 - 1  # the last one is computed in any case
    assert after.length < known.length
    assert "answered as qwen-2" in done.detail


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"sampling": Sampling(logprobs=2)}, "log-probabilities"),
        ({"uncached": True}, "leave its cache out"),
    ],
)
async def test_what_a_server_cannot_do_is_refused_in_words(job, words):
    with stand_in() as server:
        async with remote(server) as client:
            refused = end(await asked(client, **job))
            embedding = client.embed(["a text"])
            with pytest.raises(Exception, match="embed"):
                await embedding
            assert "no checkpoints" in await client.adopt(["file"])

    assert refused.outcome is Outcome.REFUSED and words in refused.detail


async def test_a_schema_binds_the_answer_by_the_servers_own_means():
    schema = Sampling(schema='{"type": "object"}')
    bodies = {}
    for kind in ("vLLM", "llama-server", "other"):
        with stand_in(Script(kind)) as server:
            async with remote(server) as client:
                done = end(await asked(client, sampling=schema))
                bodies[kind] = server.asked[-1] if server.asked else done.detail

    assert bodies["vLLM"]["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert bodies["llama-server"]["json_schema"] == {"type": "object"}
    assert "JSON schema" in bodies["other"]


async def test_an_answer_that_nobody_waits_for_is_given_up_at_the_server():
    gate = threading.Event()
    with stand_in(Script(gate=gate)) as server:
        async with remote(server) as client:
            floor, tail = await prompt(client, QUESTION)
            client.put_floor("floor", floor, "pool")
            answer = client.run(InferenceJob(0, "floor", tail, 1, 20))
            async for message in answer:
                if isinstance(message, AnswerDelta):
                    break
            await answer.aclose()
            while client.snapshot.running:
                await client.next_snapshot()
            gate.set()


# -- several servers


async def test_a_codex_stays_on_one_server_and_another_identity_may_be_on_another():
    with stand_in() as one, stand_in() as two:
        async with remote(one, two) as client:
            floor, tail = await prompt(client, QUESTION)
            for number in range(16):
                client.put_floor(f"floor {number}", floor, f"pool {number}")
            for _ in range(2):
                for number in range(16):
                    job = InferenceJob(0, f"floor {number}", tail, 1, 4)
                    assert end([one async for one in client.run(job)]).outcome is Outcome.DONE

    assert len(one.asked) + len(two.asked) == 32
    assert len(one.asked) % 2 == len(two.asked) % 2 == 0
    assert one.asked and two.asked


async def test_a_server_that_fails_before_the_first_text_has_another_one_asked_and_once_only():
    scripts = [Script(refusals=[(500, "no memory")]), Script(refusals=[(500, "no memory")])]
    with stand_in(scripts[0]) as one, stand_in(scripts[1]) as two:
        async with remote(one, two) as client:
            failed, answered = await asked(client), await asked(client)

    assert end(failed).outcome is Outcome.FAILED and "no memory" in end(failed).detail
    assert len(one.asked) + len(two.asked) == 3
    assert said(answered) == one.script.answer


async def test_a_try_that_failed_leaves_nothing_in_the_next_one():
    with stand_in() as one, stand_in() as two:
        async with remote(one, two) as client:
            await asked(client)
            first = one if one.asked else two
            first.script.answers_as, first.script.cut_after = "qwen-2", 0
            done = end(await asked(client))

    assert (done.outcome, done.detail) == (Outcome.DONE, "")


async def test_a_server_that_ends_has_its_codices_answered_by_another():
    with stand_in() as one, stand_in() as two:
        async with remote(one, two) as client:
            await asked(client)
            first = one if one.asked else two
            first.leave()
            again = await asked(client)
            states = {state.url: state for state in client.snapshot.servers}

    assert said(again) == one.script.answer
    assert states[first.url].state == "down" and "cannot be reached" in states[first.url].reason


async def test_a_drained_server_gets_nothing_new():
    with stand_in() as one, stand_in(Script(drained=True)) as two:
        async with remote(one, two) as client:
            await client.ensure_ready()
            while {state.state for state in client.snapshot.servers} != {"up", "drained"}:
                await client.next_snapshot()
            floor, tail = await prompt(client, QUESTION)
            for number in range(8):
                client.put_floor(f"floor {number}", floor, f"pool {number}")
                job = InferenceJob(0, f"floor {number}", tail, 1, 4)
                assert end([one async for one in client.run(job)]).outcome is Outcome.DONE

    assert len(one.asked) == 8 and two.asked == []


async def test_a_server_with_another_model_is_not_used():
    with stand_in() as one, stand_in(Script(model="llama")) as two:
        async with remote(one, two) as client:
            await client.ensure_ready()
            assert {state.state for state in client.snapshot.servers} == {"up", "down"}  # before anybody can ask
            (reason,) = (state.reason for state in client.snapshot.servers if state.state == "down")

    assert "serves llama" in reason and "qwen" in reason


async def test_an_only_server_with_another_model_by_now_gets_no_prompt():
    with stand_in(Script("llama-server")) as server:
        async with remote(server) as client:
            await asked(client)
            server.leave()
            with pytest.raises(EngineUnavailable, match="cannot be reached"):  # from now on it is looked at often
                await asked(client)
            with stand_in(Script("llama-server", model="llama"), port=server.port) as changed:
                while "serves llama" not in client.snapshot.servers[0].reason:
                    await client.next_snapshot()
                refused = end(await asked(client))

    assert (refused.reason, changed.asked) == (Reason.ENGINE, [])
    assert "serves llama, and this daemon began with qwen" in refused.detail


async def test_pressure_is_what_waits_at_the_servers():
    page = "vllm:num_requests_running 2.0\nvllm:num_requests_waiting 4.0\nvllm:kv_cache_usage_perc 0.5\n"
    with stand_in(Script(metrics=page)) as server:
        async with remote(server) as client:
            await client.ensure_ready()
            while client.snapshot.pressure is None:
                await client.next_snapshot()
            (state,) = client.snapshot.servers

    assert (state.running, state.waiting, state.cache) == (2, 4, 0.5)
    assert client.snapshot.pressure == 0.85
