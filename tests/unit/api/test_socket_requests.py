"""What comes over the socket is checked, and every refusal has its status and its words."""

import inspect
import json
import socket

import httpx2
import pytest
from support.small_service import REFUSALS, SmallService

from orchestrator.program import Program
from orchestrator.service import ToolChoice

CHAT = "/v1/chat/completions"
TOOL = {"name": "open"}
LARGE = {"type": "json_schema", "json_schema": {"schema": {"const": "ü" * 11_000}}}  # each is six bytes of JSON


def asked(text, **more):
    return {"messages": [{"role": "user", "content": text}], **more}


def choosing(choice):
    return json.dumps(asked("x", tools=[TOOL], tool_choice=choice)).encode()


def allowed(mode, *tools):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    "name", [name for name in vars(SmallService) if name[0] != "_" and inspect.isfunction(getattr(Program, name, None))]
)
def test_the_small_service_has_the_program_s_methods_with_its_parameters(name):
    own, real = (inspect.signature(getattr(holder, name)) for holder in (SmallService, Program))
    assert own.parameters == real.parameters


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("question", "status", "code"),
    [
        ("huge", 400, "context_length_exceeded"),
        ("full", 429, "full"),
        ("loading", 503, "not_ready"),
        ("paused", 503, "paused"),
    ],
)
def test_a_refusal_before_the_first_word_has_its_status_also_when_streaming(http, stream, question, status, code):
    answer = http.post(CHAT, json=asked(question, stream=stream))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert error["message"] == REFUSALS[question].message
    assert error["hint"] == REFUSALS[question].hint
    assert ("retry-after" in answer.headers) == (status in (429, 503))


def test_waiting_that_helps_says_how_long(http):
    assert http.post(CHAT, json=asked("paused")).headers["retry-after"] == "13"


def test_our_own_mistake_is_a_500_without_its_traceback(http):
    answer = http.post(CHAT, json=asked("bug"))
    assert answer.status_code == 500
    assert "ours" not in answer.text
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "messages"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "body"),
        (b"{}", "messages: is missing"),
        (b'{"messages": []}', "messages: is empty"),
        (b'{"messages": "x"}', "messages: should be a list"),
        (b'{"messages": [{"role": "user", "content": 3}]}', "messages.0.content: should be text"),
        (b'{"messages": [{"role": "king", "content": "x"}]}', "messages.0.role: should be 'system', "),
        (
            b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
            "a lone surrogate, half a character that is no text",
        ),
        (b'{"messages": [{"role": "user", "content": "\\udc00 x"}]}', "a lone surrogate"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "not UTF-8"),
        (json.dumps(asked("x", temperature=9)).encode(), "temperature"),
        (json.dumps(asked("x", max_tokens=0)).encode(), "max_tokens: should be 1 or more"),
        (json.dumps(asked("x", seed=1.5)).encode(), "seed: should be a whole number"),
        (json.dumps(asked("x", max_tokens=True)).encode(), "max_tokens: should be a whole number"),
        (json.dumps(asked("x", max_tokens="9")).encode(), "max_tokens: should be a whole number"),
        (json.dumps(asked("x", temperature="0")).encode(), "temperature: should be a number"),
        (json.dumps(asked("x", temperature=False)).encode(), "temperature: should be a number"),
        (json.dumps(asked("x", stream="true")).encode(), "stream: should be true or false"),
        (json.dumps(asked("x", lore={"wait": 0})).encode(), "lore.wait: should be true or false"),
        (json.dumps(asked("x", lore={"timeout_s": "3"})).encode(), "lore.timeout_s: should be a number"),
        (json.dumps(asked("x", n=2)).encode(), "n:"),
        (json.dumps(asked("x", top_logprobs=3)).encode(), "top_logprobs: only together with logprobs"),
        (json.dumps(asked("x", logprobs=True, top_logprobs=21)).encode(), "top_logprobs"),
        (json.dumps(asked("x", n_probs=-1)).encode(), "n_probs"),
        (json.dumps(asked("x", tool_choice="required")).encode(), "tool_choice"),
        (json.dumps(asked("x", lore={"codexx": "demo"})).encode(), "unknown field lore.codexx"),
        (json.dumps(asked("x", lore={"session": "a", "continue": True})).encode(), "exclude"),
        (json.dumps(asked("x", model="lore/demo", lore={"codex": "other"})).encode(), "lore.codex"),
        (json.dumps(asked("x", response_format={"type": "json_schema"})).encode(), "json_schema"),
        (
            json.dumps(asked("x", response_format={"type": "json_schema", "json_schema": {}})).encode(),
            "schema is missing",
        ),
        (json.dumps(asked("x", response_format=LARGE), ensure_ascii=False).encode(), "has 66,013 bytes"),
        (json.dumps(asked("x", stop=["a"] * 17)).encode(), "stop"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "image_url"),
        (b'{"temperature": NaN, "messages": [{"role": "user", "content": "x"}]}', "temperature"),
        (b"[" * 60_000, "nested too deeply at line 1"),
        (b'{"messages": tru}', "not JSON: a word other than true, false and null at line 1"),
        (b'{"seed": 1' + b"0" * 5_000 + b"}", "a number of more than 4,300 digits at line 1"),
        (json.dumps(asked("x", temperature=10**400)).encode(), "temperature: should be a finite number, below 1e308"),
        (json.dumps(asked("x", seed=1e30)).encode(), "should be a whole number, without a point or an exponent"),
        (choosing("sometimes"), "tool_choice: should be 'auto', 'none' or 'required'"),
        (choosing({"type": "custom", "custom": {"name": "open"}}), "tool_choice.type: should be 'function'"),
        (choosing({"type": "function", "function": {"name": "shut"}}), "tool_choice: the tool shut is not offered"),
        (choosing({"type": "allowed_tools"}), "tool_choice.allowed_tools.mode: is missing"),
        (choosing(allowed("never", TOOL)), "tool_choice.allowed_tools.mode: should be 'auto' or 'required'"),
        (choosing(allowed("auto")), "tool_choice.allowed_tools.tools: is empty"),
        (choosing(allowed("auto", {"type": "mcp"})), "tool_choice.allowed_tools.tools.0.type: should be 'function'"),
        (choosing(allowed("auto", TOOL, {"name": "shut"})), "tool_choice: the tool shut is not offered"),
        (json.dumps(asked("x", tools=[{"type": "retrieval"}])).encode(), "tools.0.type: should be 'function'"),
        (json.dumps(asked("x", tools=[{"function": {}}])).encode(), "tools.0.function.name: is missing"),
        (json.dumps(asked("x", tools=[TOOL, {"name": 3}])).encode(), "tools.1.function.name: should be text"),
        (json.dumps(asked("x", tools=[{"name": "a\nb"}])).encode(), "tools.0.function.name: holds a line break"),
        (
            json.dumps(asked("x", tools=[TOOL | {"parameters": []}])).encode(),
            "tools.0.function.parameters: should be an obj",
        ),
    ],
)
def test_a_wrong_body_is_refused_with_the_place_of_the_fault(http, lorekeep, body, words):
    answer = http.post(CHAT, content=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert lorekeep.service.asked == []


def test_a_refusal_repeats_of_a_name_without_end_its_two_ends(http):
    name = "begin" + "x" * 60_000 + "end"
    for answer in (
        http.post(CHAT, json=asked("a", model=name)),
        http.post(CHAT, json=asked("a", lore={name: 1})),
        http.get(f"/v1/{name}"),
    ):
        message = answer.json()["error"]["message"]
        assert ("begin" in message, "end" in message, len(message) < 2_100) == (True, True, True)


def test_a_tool_is_taken_in_openai_s_wrapping_or_without_it(http, lorekeep):
    wrapped = {"type": "function", "function": {"name": "look", "description": None}}
    assert http.post(CHAT, json=asked("a", tools=[TOOL, wrapped])).status_code == 200
    assert [tool.name for tool in lorekeep.service.asked[0].tools] == ["open", "look"]


def test_the_tools_that_may_be_called_are_named_in_openai_s_wrapping_or_without_it(http, lorekeep):
    both, flat = allowed("auto", TOOL, {"type": "function", "function": {"name": "look"}}), allowed("required", TOOL)
    for choice in (both, {"type": "allowed_tools", **flat["allowed_tools"]}):
        answer = http.post(CHAT, json=asked("a", tools=[TOOL, {"name": "look"}], tool_choice=choice))
        assert answer.status_code == 200
    assert [ask.tool_choice for ask in lorekeep.service.asked] == [
        ToolChoice("auto", ("open", "look")),
        ToolChoice("required", ("open",)),
    ]


def test_a_whole_number_is_a_number(http, lorekeep):
    assert http.post(CHAT, json=asked("a", temperature=1, lore={"timeout_s": 30})).status_code == 200
    assert (lorekeep.service.asked[0].sampling.temperature, lorekeep.service.asked[0].timeout_s) == (1.0, 30.0)


def test_a_search_for_a_text_without_end_is_refused(http):
    assert http.post("/v1/search", json={"query": "x" * 10_000}).status_code == 200
    refused = http.post("/v1/search", json={"query": "x" * 10_001})
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "query: is longer than 10,000 characters")


def test_a_codex_may_be_named_without_its_prefix(http, lorekeep):
    for model in ("lore/demo", "demo"):
        assert http.post(CHAT, json=asked("a", model=model)).json()["model"] == model
        assert http.get(f"/v1/models/{model}").json()["id"] == model
    assert [ask.codex for ask in lorekeep.service.asked] == ["demo", "demo"]
    assert http.post(CHAT, json=asked("a", model="demon")).json()["error"]["code"] == "model_not_found"


def test_the_model_is_changed_by_its_name_and_a_wrong_one_is_refused_in_our_shape(http, lorekeep):
    changed = http.put("/v1/model", json={"model": "builtin:noise-s"}).json()
    assert (changed["changed"], changed["model"]["name"], changed["cold"][0]["name"]) == (
        True,
        "builtin:noise-s",
        "demo",
    )
    assert http.put("/v1/model", json={"model": "builtin:noise-s"}).json()["changed"] is False
    for body, words in (({}, "model: is missing"), ({"model": ""}, "model: is empty"), ({"model": "broken"}, "broken")):
        refused = http.put("/v1/model", json=body)
        assert (refused.status_code, words in refused.json()["error"]["message"]) == (400, True)


def test_what_clients_send_and_nobody_needs_is_ignored(http):
    extra = {"user": "u", "metadata": {}, "presence_penalty": 0.5, "parallel_tool_calls": True, "store": False}
    assert http.post(CHAT, json=asked("a", **extra)).status_code == 200


def test_a_body_above_the_limit_is_refused_announced_or_not(http):
    assert http.post(CHAT, content=b"x" * 70_000).status_code == 413
    assert http.post(CHAT, content=iter([b"x" * 40_000] * 2)).status_code == 413


def test_an_unknown_route_and_a_wrong_method_say_so_in_our_shape(http):
    unknown, wrong = http.get("/v1/nothing"), http.get(CHAT)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_route")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "wrong_method")
    assert "lore --help" in unknown.json()["error"]["hint"]
    assert wrong.json()["error"]["hint"] == "this route takes POST"


@pytest.mark.parametrize(("path", "meant"), [("/chat/completions", CHAT), (f"/v1{CHAT}", CHAT)])
def test_an_address_that_does_not_end_in_v1_once_is_told_so(http, path, meant):
    assert http.post(path, json={}).json()["error"]["hint"] == f"there is {meant}: a client's address ends in /v1, once"


def test_a_wrong_method_is_told_all_those_of_its_path_and_none_of_another(http):
    codices, found = http.request("OPTIONS", "/v1/codices"), http.request("OPTIONS", "/v1/memories/search")
    assert (codices.headers["allow"], found.headers["allow"]) == ("GET, HEAD, POST", "POST")


@pytest.mark.parametrize("route", ["/v1/traces?n=", "/v1/codices/demo/map?most=", "/v1/codices/demo/files?n="])
@pytest.mark.parametrize("number", ["", "0", "-1", "+5", "1e3", "٢", "9" * 5000])
def test_what_is_no_number_behind_a_question_mark_is_refused(http, route, number):
    """Python makes no number of more than 4,300 digits."""
    answer = http.get(route + number)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert "leave it out for" in answer.json()["error"]["hint"]


def test_every_answer_names_the_daemon_s_version(http):
    assert http.get("/healthz").headers["x-lorekeep-version"]
    assert http.get("/v1/nothing").headers["x-lorekeep-version"]


def test_waiting_is_told_in_comments_that_other_clients_ignore(http):
    with http.stream("POST", CHAT, json=asked("a", stream=True)) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert json.loads(lines[0].removeprefix(": ")) == {
        "progress": {"phase": "floor", "done": 512, "total": 1024, "codex": "demo", "left_s": 0.5, "detail": ""}
    }
    assert lines[-1] == "data: [DONE]"


def test_a_client_that_goes_away_while_streaming_cancels_its_ask(http, lorekeep):
    with http.stream("POST", CHAT, json=asked("forever", stream=True)) as answer:
        assert "floor" in next(answer.iter_lines())
    lorekeep.wait_for(lorekeep.service.ended)


@pytest.mark.parametrize("body", [asked("silent"), asked("silent", stream=True)])
def test_a_client_that_goes_away_before_the_first_word_cancels_its_ask(lorekeep, body):
    raw = json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(lorekeep.socket))
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(raw), raw))
        lorekeep.wait_for(lorekeep.service.begun)
    lorekeep.wait_for(lorekeep.service.ended)


def test_a_plan_takes_the_same_body_and_runs_nothing(http):
    plan = http.post("/v1/plan", json=asked("a", prompt=True)).json()
    assert plan["text"] == "<the exact prompt>"
    assert [block["kind"] for block in plan["blocks"]] == [
        "identity",
        "codex",
        "environment",
        "karma",
        "state",
        "query",
    ]


def test_a_load_streams_its_progress_and_ends_with_the_codex(http):
    with http.stream("POST", "/v1/codices", json={"path": "/src/new"}) as answer:
        events = [json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line]
    assert [event["event"] for event in events] == ["progress", "loaded"]
    assert events[-1]["codex"]["root"] == "/src/new"
    assert [codex["name"] for codex in http.get("/v1/codices").json()["codices"]] == ["demo", "new"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"path": "relative"}, 400),
        ({"path": "/missing"}, 400),
        ({"path": "/busy"}, 409),
        ({"path": "/x", "pth": 1}, 400),
        ({}, 400),
    ],
)
def test_a_load_that_cannot_begin_has_its_status(http, body, status):
    assert http.post("/v1/codices", json=body).status_code == status


def test_codices_are_shown_reloaded_cancelled_and_dropped(http):
    assert http.get("/v1/codices/demo").json()["codex"]["tier"] == "full"
    assert "loaded" in http.post("/v1/codices/demo/reload").text
    assert http.post("/v1/codices/demo/cancel").json() == {"cancelled": "demo", "what": "load"}
    assert http.delete("/v1/codices/demo").json() == {"dropped": "demo"}
    assert http.get("/v1/codices/demo").status_code == 404


def test_search_answers_with_hits(http):
    hits = http.post("/v1/search", json={"query": "run", "n": 1}).json()["hits"]
    assert (hits[0]["path"], hits[0]["start"], hits[0]["end"]) == ("src/a.py", 10, 11)
    assert http.post("/v1/search", json={"query": ""}).status_code == 400


def test_sessions_are_listed_shown_renamed_and_dropped(http):
    http.post(CHAT, json=asked("hello", lore={"session": "one"}))
    assert http.get("/v1/sessions").json()["sessions"][0]["name"] == "one"
    assert http.patch("/v1/sessions/one", json={"name": "two"}).json()["name"] == "two"
    assert http.get("/v1/sessions/two").json()["session"]["turns"][0]["text"] == "hello"
    assert http.delete("/v1/sessions/two").status_code == 200
    assert http.delete("/v1/sessions/two").json()["error"]["code"] == "not_found"


def test_ready_is_not_the_same_as_healthy(http, lorekeep):
    assert http.get("/readyz").json() == {"ready": True, "detail": "loading the model"}
    lorekeep.service.known.clear()
    assert http.get("/readyz").status_code == 503
    assert http.get("/healthz").status_code == 200


def test_health_is_as_llama_server_has_it(http, lorekeep):
    assert http.get("/health").json() == {"status": "ok"}
    lorekeep.service.known.clear()
    refused = http.get("/health")
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "unavailable_error")
    assert refused.json()["error"]["message"] == "loading the model"


def test_status_names_the_version(http):
    status = http.get("/v1/status").json()
    assert {"version", "model", "engine", "governor", "codices", "sessions", "queue"} <= set(status)


def test_a_stream_keeps_its_order_under_many_clients_at_once(lorekeep):
    import concurrent.futures

    def one(number):
        transport = httpx2.HTTPTransport(uds=str(lorekeep.socket), verify=False)
        with httpx2.Client(transport=transport, base_url="http://localhost") as client:
            words = " ".join(f"w{number}-{index}" for index in range(50))
            return words, client.post(CHAT, json=asked(words)).json()["choices"][0]["message"]["content"].strip()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(sent == received for sent, received in pool.map(one, range(16)))
