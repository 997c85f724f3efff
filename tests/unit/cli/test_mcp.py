"""`lore mcp`, by hand: each test writes the protocol's lines itself and reads what comes back."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.served import Served, served
from support.vocabularies import vocabulary_model
from support.waiting import SOON

from orchestrator.cli import INTERRUPTED
from orchestrator.cli.ask import Answer
from orchestrator.cli.mcp_tools import INSTRUCTIONS, MOST, TOOLS, GrowingProgress, cut, rests_on
from orchestrator.engine.vocab import Vocabulary

LORE = Path(sys.executable).parent / "lore"
HANDSHAKE = "2025-11-25"
STATELESS = "2026-07-28"
MOST_TOKENS = 1_500  # of all schemas together


class Agent:
    """An agent that speaks the wire line by line to `lore mcp` in a process of its own."""

    def __init__(self, socket: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [LORE, "mcp", *arguments],
            env={**os.environ, "LORE_SOCKET": str(socket)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.number = 0
        self.reports: list[Any] = []  # of progress, as they came

    def write(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def send(self, method: str, **params: Any) -> int:
        self.number += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
        return self.number

    def notify(self, method: str, **params: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def reply(self, number: int) -> Any:
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("method") == "notifications/progress":
                self.reports.append(message["params"])
            elif message.get("id") == number:
                return message
        raise AssertionError(f"no reply to {number}: {self.process.stderr.read()}")

    def ask(self, method: str, **params: Any) -> Any:
        return self.reply(self.send(method, **params))

    def begin(self, version: str = HANDSHAKE) -> Any:
        about = {"capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
        begun = self.ask("initialize", protocolVersion=version, **about)
        self.notify("notifications/initialized")
        return begun

    def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """Its text, and whether it is a fault."""
        found = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return found["content"][0]["text"], found["isError"]

    def end(self) -> int:
        """As a client that leaves in order."""
        self.process.stdin.close()
        code = self.process.wait(SOON)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture(scope="module")
def lorekeep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def shared(lorekeep: Served) -> Iterator[Agent]:
    agent = Agent(lorekeep.socket)
    agent.begin()
    yield agent
    assert agent.end() == 0


@pytest.fixture
def agent(shared: Agent, lorekeep: Served) -> Agent:
    lorekeep.renew()
    shared.reports.clear()
    return shared


# ---- tools -----------------------------------------------------------------------------------------------------------


def test_all_schemas_together_are_short(quoter_model):
    """Counted by the built-in model's own tokenizer, which cuts finer than those of large models."""
    listed = [{"name": one.name, "description": one.says, "inputSchema": one.schema} for one in TOOLS.values()]
    text = json.dumps(listed, separators=(",", ":")) + INSTRUCTIONS
    assert len(Vocabulary(vocabulary_model(quoter_model)).content(text)) <= MOST_TOKENS


def test_the_tools_are_listed_with_their_schemas_and_whether_they_only_read(agent):
    listed = {one["name"]: one for one in agent.ask("tools/list")["result"]["tools"]}
    assert {name: one["inputSchema"] for name, one in listed.items()} == {n: one.schema for n, one in TOOLS.items()}
    assert {name for name, one in listed.items() if not one.get("annotations", {}).get("readOnlyHint")} == {"remember"}


def test_an_answer_comes_with_what_it_rests_on(agent):
    text, wrong = agent.call("ask", question="hello there", codex="demo")
    assert not wrong
    assert text.split("\n\n")[0] == "hello there"
    assert "cites src/a.py:10" in text


def test_an_answer_says_what_had_no_room():
    answer = Answer(["x"], "stop", {"governor": {"left_out": "left out: 3 turns (condensed); lore plan shows which"}})
    assert rests_on(answer)[-1] == "left out: 3 turns (condensed)"


def test_search_gives_places_with_their_lines(agent):
    text, wrong = agent.call("search", query="run")
    assert not wrong
    assert text.startswith("src/a.py:10-11  run")
    assert "def run():" in text


def test_a_symbol_is_named_with_its_place(agent):
    assert agent.call("symbol", name="run", what="callers") == (
        "src/a.py:10  def run(self)  [in App, lines 20, 22]",
        False,
    )


def test_lines_of_a_file_are_numbered_and_say_how_many_there_are(agent):
    text, wrong = agent.call("read", path="src/a.py", start=3, end=4)
    assert (text, wrong) == ("3 line 3\n4 line 4\n\n[lines 3-4 of 12]", False)
    assert agent.call("read", path="src/a.py", start=12) == ("12 line 12", False)


@pytest.mark.parametrize(("characters", "name"), [(4_000, "CAG"), (4_000_000, "RAG")])
def test_an_agent_is_told_whether_to_read_a_text_whole_in_its_own_window(agent, characters, name):
    text, wrong = agent.call("context_strategy", query="why?", char_count=characters, model_context_length=100_000)
    assert not wrong
    assert text.startswith(name)
    assert "window 100,000 tokens" in text


def test_files_of_a_codex_are_a_text_too(agent):
    text, wrong = agent.call("context_strategy", query="why?", file_paths=["src/a.py"], model_context_length=9_000)
    assert (text[:3], wrong) == ("CAG", False)


def test_a_plan_says_what_would_be_sent(agent):
    text, _ = agent.call("plan", question="why?")
    assert "100 tokens: 90 cached, 10 to compute" in text


def test_what_an_agent_remembers_is_proposed_to_the_user(agent):
    text, wrong = agent.call("remember", text="The cache is Redis.", subject="cache")
    assert not wrong
    assert text.startswith("proposed as ")
    assert "lore memory confirm" in text
    assert agent.call("recall", query="cache") == ("nothing is remembered about it", False)


def test_the_codex_of_the_command_is_meant_where_a_call_names_none(lorekeep):
    agent = Agent(lorekeep.renew().socket, "--codex", "demo")
    agent.begin()
    agent.call("ask", question="one")
    agent.call("ask", question="two", codex="none")
    assert [one.codex for one in lorekeep.service.asked] == ["demo", "none"]
    assert agent.end() == 0


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("ask", {"question": "full"}, "the queue is full"),
        ("ask", {"prompt": "x"}, "ask has no prompt\nit takes question, codex, session, max_tokens"),
        ("ask", {}, "ask needs question"),
        ("search", {"query": 3}, "search: query is no string"),
        ("search", {"query": "x", "n": True}, "search: n is no integer"),
        ("symbol", {"name": "x", "what": "colour"}, "what: "),
        ("search", {"query": "x", "n": 5000}, "n: "),
        ("read", {"path": "/etc/passwd"}, "is no file of this codex\nthere are: src/a.py"),
        ("remember", {"text": "x", "cite": [""]}, "PATH:START-END"),
    ],
)
def test_what_is_refused_is_the_tool_s_answer_with_what_to_do(agent, tool, arguments, words):
    text, wrong = agent.call(tool, **arguments)
    assert wrong
    assert words in text


def test_an_unknown_tool_is_the_protocol_s_error_and_names_those_there_are(agent):
    error = agent.ask("tools/call", name="format_disk", arguments={})["error"]
    assert error["code"] == -32602
    assert "there are ask, search, symbol" in error["message"]


def test_a_result_is_cut_at_a_line_and_says_so():
    text = "a line of the file\n" * 5_000
    kept, notice = cut(text).rsplit("\n", 1)
    assert text.startswith(kept)
    assert len(kept) <= MOST
    assert f"{len(text) - len(kept):,} of {len(text):,} characters" in notice
    assert cut("short") == "short"


# ---- resources -------------------------------------------------------------------------------------------------------


def test_the_codices_are_resources_that_say_what_they_hold(agent):
    listed, mapped = agent.ask("resources/list")["result"]["resources"]
    assert (listed["uri"], mapped["uri"]) == ("lore://codices/demo", "lore://codices/demo/map")
    (lines,) = agent.ask("resources/read", uri=mapped["uri"])["result"]["contents"]
    assert lines["text"] == "src/a.py: App: run\nsrc/b.py: help_it"
    (read,) = agent.ask("resources/read", uri=listed["uri"])["result"]["contents"]
    assert read["uri"] == listed["uri"]
    assert read["text"].startswith("demo: ")


def test_the_templates_of_resources_make_the_uris_that_are_listed(agent):
    templates = agent.ask("resources/templates/list")["result"]["resourceTemplates"]
    listed = agent.ask("resources/list")["result"]["resources"]
    assert [one["uriTemplate"].format(name="demo") for one in templates] == [one["uri"] for one in listed]


NO_RESOURCES = ("nobody", "nobody/map", "", "/map", "a/../demo", "demo/", "demo/map/", "demo%2Fmap")


@pytest.mark.parametrize("uri", [*(f"lore://codices/{rest}" for rest in NO_RESOURCES), "file:///etc/passwd", "map"])
def test_a_resource_that_there_is_not_is_refused_with_what_to_do(agent, uri):
    error = agent.ask("resources/read", uri=uri)["error"]
    assert error["code"] == -32602
    assert "\n" in error["message"]


# ---- waiting, and leaving --------------------------------------------------------------------------------------------


def test_progress_is_reported_while_a_floor_is_computed_to_whom_asked_for_it(agent):
    agent.ask("tools/call", name="ask", arguments={"question": "x"}, _meta={"progressToken": "p"})
    assert [(one["progressToken"], one["progress"], one["total"]) for one in agent.reports] == [("p", 512, 1024)]
    assert agent.reports[0]["message"].startswith("computing the codex, 50 %")
    agent.reports.clear()
    agent.call("ask", question="x")
    assert agent.reports == []


def test_progress_grows_with_every_report_over_all_phases():
    waiting = GrowingProgress()
    phases = [("queue", 0, 0), ("queue", 0, 0), ("floor", 10, 100), ("floor", 100, 100), ("prompt", 1, 5)]
    made = [
        waiting.report({"progress": {"phase": phase, "done": done, "total": total}}, float(at))
        for at, (phase, done, total) in enumerate(phases)
    ]
    numbers = [done for done, _, _ in made]
    assert all(before < after for before, after in pairwise(numbers))
    assert all(total is None or done <= total for done, total, _ in made)


def test_a_cancelled_call_ends_in_the_daemon_and_the_next_one_is_answered(agent, lorekeep):
    number = agent.send("tools/call", name="ask", arguments={"question": "forever"})
    lorekeep.wait_for(lorekeep.service.begun)
    agent.notify("notifications/cancelled", requestId=number, reason="the user left")
    lorekeep.wait_for(lorekeep.service.ended)
    assert agent.call("search", query="x")[1] is False


def test_calls_wait_for_none_of_the_others(agent, lorekeep):
    agent.send("tools/call", name="ask", arguments={"question": "forever"})
    lorekeep.wait_for(lorekeep.service.begun)
    assert agent.call("search", query="x")[1] is False


@pytest.mark.parametrize("leave", ["stdin", signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_client_that_vanishes_ends_the_command_and_what_the_daemon_ran_for_it(lorekeep, leave):
    agent = Agent(lorekeep.renew().socket)
    agent.begin()
    agent.send("tools/call", name="ask", arguments={"question": "forever"})
    lorekeep.wait_for(lorekeep.service.begun)
    if leave == "stdin":
        agent.process.stdin.close()
    else:
        agent.process.send_signal(leave)
    lorekeep.wait_for(lorekeep.service.ended)
    agent.process.wait(SOON)
    assert "Traceback" not in agent.process.stderr.read()


def test_what_was_asked_before_the_input_ended_is_answered(lorekeep):
    agent = Agent(lorekeep.renew().socket)
    agent.begin()
    number = agent.send("tools/call", name="search", arguments={"query": "run"})
    agent.process.stdin.close()
    assert agent.reply(number)["result"]["isError"] is False
    assert agent.end() == 0


def test_ctrl_c_ends_the_command_at_once_as_it_ends_all_others(lorekeep):
    agent = Agent(lorekeep.renew().socket)
    agent.begin()
    agent.send("tools/call", name="ask", arguments={"question": "forever"})
    lorekeep.wait_for(lorekeep.service.begun)
    agent.process.send_signal(signal.SIGINT)
    assert agent.process.wait(SOON) == INTERRUPTED
    assert agent.process.stderr.read() == ""


def test_a_client_that_reads_no_more_ends_the_command_quietly_though_it_keeps_the_other_half_open(lorekeep):
    agent = Agent(lorekeep.renew().socket)
    agent.begin()
    agent.process.stdout.close()
    with suppress(BrokenPipeError):  # it may have ended already: it waits for no further line
        agent.send("tools/call", name="search", arguments={"query": "x"})
    assert agent.process.wait(SOON) == 128 + signal.SIGPIPE
    assert agent.process.stderr.read() == ""


def test_what_is_no_utf8_or_too_large_harms_no_later_call(agent):
    agent.process.stdin.buffer.write(b"\xff\xfe\x80 junk\n")
    text, wrong = agent.call("search", query="x" * 1_000_000)
    assert wrong
    assert "larger than" in text
    assert agent.call("search", query="x")[1] is False


# ---- the wire --------------------------------------------------------------------------------------------------------


def test_lines_that_are_no_messages_are_refused_and_the_next_one_is_answered(agent):
    for garbage in ("not json", "[1, 2", '{"jsonrpc": "1.0"}', "\x00\xff", '{"id": 7}', "[]", "{}", "9" * 5_000):
        agent.write(garbage)
    assert agent.ask("no/such/method")["error"]["code"] == -32601
    assert agent.call("search", query="x")[1] is False


@pytest.mark.parametrize("asked", ["2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE])
def test_every_revision_with_a_handshake_is_spoken(lorekeep, asked):
    agent = Agent(lorekeep.socket)
    assert agent.begin(asked)["result"]["protocolVersion"] == asked
    assert agent.call("search", query="x")[1] is False
    assert agent.end() == 0


def test_a_client_of_an_unknown_revision_is_offered_the_latest(lorekeep):
    agent = Agent(lorekeep.socket)
    assert agent.begin("2031-01-01")["result"]["protocolVersion"] == HANDSHAKE
    assert agent.end() == 0


def stateless(version: str = STATELESS) -> dict[str, Any]:
    names = {"protocolVersion": version, "clientInfo": {"name": "by hand", "version": "1"}, "clientCapabilities": {}}
    return {f"io.modelcontextprotocol/{name}": value for name, value in names.items()}


def test_the_revision_without_a_handshake_is_spoken(lorekeep):
    agent = Agent(lorekeep.socket)
    assert STATELESS in agent.ask("server/discover", _meta=stateless())["result"]["supportedVersions"]
    called = agent.ask("tools/call", name="search", arguments={"query": "run"}, _meta=stateless())["result"]
    assert called["content"][0]["text"].startswith("src/a.py:10-11")
    wrong = agent.ask("tools/call", name="search", arguments={"query": "run"}, _meta=stateless("2031-01-01"))
    assert STATELESS in wrong["error"]["data"]["supported"]
    assert agent.end() == 0


# ---- the daemon ------------------------------------------------------------------------------------------------------


def test_without_a_daemon_every_tool_says_how_to_start_one_and_works_once_it_runs(tmp_path):
    agent = Agent(tmp_path / "lore.sock")
    agent.begin()
    text, wrong = agent.call("search", query="x")
    assert wrong
    assert "start one: lore serve" in text
    assert "start one: lore serve" in agent.ask("resources/list")["error"]["message"]
    with served(tmp_path):
        assert agent.call("search", query="x")[1] is False
    assert agent.call("search", query="x")[1] is True
    assert agent.end() == 0


def test_the_daemon_decides_what_may_be_done(tmp_path):
    with served(tmp_path, owner=os.getuid() + 1):
        agent = Agent(tmp_path / "lore.sock")
        agent.begin()
        text, wrong = agent.call("search", query="x")
        assert wrong
        assert "needs search" in text
        assert agent.end() == 0
