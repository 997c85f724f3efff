"""A server with OpenAI's routes that computes nothing: it speaks as vLLM, SGLang and llama-server do, and as told.

Its replies have the fields that those servers have (llama.cpp's tools/server, SGLang's entrypoints/openai, vLLM's
entrypoints/openai), as far as an engine reads them. Its vocabulary is bytes and two control tokens, which it reads in any
text, as the tokenizers of vLLM and SGLang do. Its prefix cache is honest: a prompt's cached tokens are those that it begins
with as an earlier one did.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTROL = {"<|im_start|>": 256, "<|im_end|>": 257}
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OWNERS = {"vLLM": "vllm", "SGLang": "sglang", "llama-server": "llamacpp", "other": "somebody"}


@dataclass
class Script:
    """How the server behaves; may be changed while it runs. `refusals`: statuses that the next answers are refused with.
    `cut_after`: pieces of text after which it drops the connection. `usage`: whole, bare (no details), none, wrong, or more
    (generated than it may). `takes`: the kinds of prompt that /completions takes; none: it has no such route. `tokens`:
    what every text is tokenised as. `ends`: why an answer does, where not as usual. `gate`: pieces wait for it. `held`:
    what requests of a path wait for, while `StandIn.begun` is set. `boundless`: max_tokens is not kept to. `encode`:
    its vocabulary, where that is another one."""

    kind: str = "vLLM"
    model: str = "qwen"
    context: int = 8192
    answer: str = "It is read in settings.py."
    refusals: list[tuple[int, str]] = field(default_factory=list)
    cut_after: int | None = None
    usage: str = "whole"
    takes: tuple[type, ...] = (list, str)
    tokenizes: bool = True
    tokens: list[int] | None = None
    ends: str = ""
    answers_as: str = ""
    key: str = ""
    drained: bool = False
    metrics: str = ""
    thought: str = ""
    location: str = ""
    gate: threading.Event | None = None
    held: dict[str, threading.Event] = field(default_factory=dict)
    boundless: bool = False
    encode: Callable[[str, bool], list[int]] = lambda text, control: ids_of(text, control=control)


class StandIn:
    """`url` is what engine.url names. `asked`: the bodies of answers that were wanted, `paths` of all requests."""

    def __init__(self, script: Script, server: ThreadingHTTPServer) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: set[str] = set()
        self.prompts: list[list[int]] = []
        self.begun = threading.Event()
        self.connections: set[socket.socket] = set()
        self._server = server
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return "http://{}:{}/v1".format(*self._server.server_address[:2])

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def leave(self) -> None:
        """As a process that is killed: nobody listens, and every connection ends. Once."""
        self._server.shutdown()
        self._server.server_close()
        for one in tuple(self.connections):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cached(self, prompt: list[int]) -> int:
        """And keeps this one. The last token is computed in any case."""
        with self._lock:
            known = max((shared(prompt, one) for one in self.prompts), default=0)
            self.prompts.append(prompt)
        return min(known, len(prompt) - 1)


@contextmanager
def stand_in(script: Script | None = None, port: int = 0) -> Iterator[StandIn]:
    server = Server(("127.0.0.1", port), Handler)
    found = server.stand_in = StandIn(script or Script(), server)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.leave()
        thread.join()


def shared(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def ids_of(text: str, *, control: bool = True) -> list[int]:
    found: list[int] = []
    while text:
        mark = next((mark for mark in CONTROL if control and text.startswith(mark)), "")
        found += [CONTROL[mark]] if mark else text[0].encode()
        text = text[len(mark) or 1 :]
    return found


def text_of(ids: list[int]) -> str:
    names = {number: mark for mark, number in CONTROL.items()}
    return b"".join(names[one].encode() if one in names else bytes([one]) for one in ids).decode("utf-8", "replace")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Who asked has gone."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a reply is written in parts, and each would wait 40 ms for the one before

    def setup(self) -> None:
        super().setup()
        self.it.connections.add(self.connection)

    def finish(self) -> None:
        self.it.connections.discard(self.connection)
        with suppress(OSError):  # the connection was ended
            super().finish()

    def log_message(self, *_: Any) -> None: ...

    @property
    def it(self) -> StandIn:
        return self.server.stand_in  # type: ignore[attr-defined, no-any-return]

    def do_GET(self) -> None:
        script = self.it.script
        self.arrived()
        if self.path == "/health":
            self.reply(503 if script.drained else 200, {})
        elif script.location:
            self.reply(307, {}, {"Location": script.location})
        elif not self.allowed():
            return
        elif self.path == "/v1/models":
            self.reply(200, {"object": "list", "data": [self.card()]})
        elif self.path == "/props" and script.kind == "llama-server":
            settings = {"n_ctx": script.context, "params": {}}
            props = {"default_generation_settings": settings, "chat_template": TEMPLATE, "total_slots": 1}
            self.reply(200, {**props, "bos_token": "", "eos_token": "<|im_end|>"})
        elif self.path == "/metrics" and script.metrics:
            self.send(200, script.metrics.encode(), "text/plain")
        else:
            self.missing()

    def do_POST(self) -> None:
        script = self.it.script
        self.arrived()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        if self.path == "/tokenize" and script.tokenizes:
            self.tokenize(body)
        elif self.path == "/detokenize" and script.tokenizes:
            name = {"llama-server": "content", "SGLang": "text"}.get(script.kind, "prompt")
            self.reply(200, {name: text_of(body["tokens"])})
        elif self.path == "/v1/completions" and script.takes:
            self.completed(body, body["prompt"])
        elif self.path == "/v1/chat/completions":
            messages = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in body["messages"])
            self.completed(body, f"{messages}<|im_start|>assistant\n")
        else:
            self.missing()

    def arrived(self) -> None:
        self.it.paths.append(self.path)
        if (held := self.it.script.held.get(self.path)) is not None:
            self.it.begun.set()
            held.wait(60)

    def tokenize(self, body: dict[str, Any]) -> None:
        llama = self.it.script.kind == "llama-server"
        text = body["content"] if llama else body["prompt"]
        found = self.it.script.tokens or self.it.script.encode(text, body.get("parse_special", True))
        more = {} if llama else {"count": len(found), "max_model_len": self.it.script.context, "token_strs": None}
        self.reply(200, {"tokens": found, **more})

    def completed(self, body: dict[str, Any], prompt: Any) -> None:
        script = self.it.script
        if self.path == "/v1/completions" and not isinstance(prompt, script.takes):
            self.reply(400, {"error": {"message": "prompt must be a string", "type": "BadRequestError", "code": 400}})
            return
        if body["model"] != script.model:
            said = f"The model `{body['model']}` does not exist."
            self.reply(404, {"error": {"message": said, "type": "NotFoundError", "param": "model", "code": 404}})
            return
        probe = body["max_tokens"] == 1 and prompt in ([97], "a")
        if not probe:
            self.it.asked.append(body)
            if script.refusals:
                status, said = script.refusals.pop(0)
                self.reply(status, {"error": {"message": said, "type": "x", "code": status}}, {"Retry-After": "7"})
                return
        ids = prompt if isinstance(prompt, list) else ids_of(prompt)
        if len(ids) + body["max_tokens"] > script.context:
            said = f"This model's maximum context length is {script.context} tokens."
            self.reply(400, {"error": {"message": said, "type": "BadRequestError", "code": 400}})
            return
        self.stream(body, ids, 0 if probe else self.it.cached(ids), script.answer[: 1 if probe else None])

    def stream(self, body: dict[str, Any], ids: list[int], cached: int, answer: str) -> None:
        script = self.it.script
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        thought = script.thought if "messages" in body else ""
        if thought:
            self.event({"choices": [{"index": 0, "delta": {"reasoning_content": thought[:5]}, "finish_reason": None}]})
        most = None if script.boundless else body["max_tokens"]
        pieces = [answer[at : at + 5] for at in range(0, len(answer), 5)][:most]
        self.event({"choices": [self.choice(body, "")]})  # before any text, as vLLM's first one of a chat
        for number, piece in enumerate(pieces):
            if number == script.cut_after:
                self.close_connection = True
                self.connection.close()
                return
            if number and script.gate is not None:
                self.it.begun.set()
                script.gate.wait(30)
            choice = self.choice(body, piece)
            if thought and not number:  # as vLLM does: the end of a thought comes with the first text
                choice["delta"]["reasoning_content"] = thought[5:]
            self.event({"choices": [choice]})
        ended = script.ends or ("length" if len(pieces) * 5 < len(answer) else "stop")
        self.event({"choices": [{**self.choice(body, ""), "finish_reason": ended}]})
        usage = usage_of(script.usage, len(ids), cached, len(pieces))
        if usage is not None:
            self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def choice(self, body: dict[str, Any], text: str) -> dict[str, Any]:
        said = {"delta": {"content": text}} if "messages" in body else {"text": text}
        return {"index": 0, **said, "logprobs": None, "finish_reason": None}

    def event(self, event: dict[str, Any]) -> None:
        whole = {"id": "cmpl-1", "object": "text_completion", "created": 1, **event}
        whole["model"] = self.it.script.answers_as or self.it.script.model
        text = json.dumps(whole, ensure_ascii=False)  # as vLLM and llama-server write: U+2028 and its like as they are
        self.wfile.write(f"data: {text}\n\n".encode(errors="surrogatepass"))
        self.wfile.flush()

    def card(self) -> dict[str, Any]:
        script = self.it.script
        card = {"id": script.model, "object": "model", "created": 1, "owned_by": OWNERS[script.kind]}
        if script.kind == "llama-server":
            return {**card, "meta": {"n_ctx": script.context, "n_params": 7, "size": 9, "n_vocab": 258}}
        return {**card, "root": script.model, "parent": None, "max_model_len": script.context or None}

    def allowed(self) -> bool:
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.it.keys.add(key)
        if self.it.script.key in ("", key):
            return True
        self.reply(401, {"error": "Unauthorized"})
        return False

    def missing(self) -> None:
        self.reply(404, {"detail": "Not Found"})

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.send(status, json.dumps(body).encode(), "application/json", headers or {})

    def send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def usage_of(how: str, prompt: int, cached: int, generated: int) -> dict[str, Any] | None:
    whole = {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
    return {
        "whole": {**whole, "prompt_tokens_details": {"cached_tokens": cached}},
        "bare": {**whole, "prompt_tokens_details": None},
        "more": {**whole, "completion_tokens": 1_000_000, "prompt_tokens_details": {"cached_tokens": cached}},
        "wrong": {**whole, "prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": prompt}},
        "none": None,
    }[how]
