"""The Model Context Protocol over lines of JSON-RPC 2.0: the server's side, of what tools and resources need.

    revision                    a client begins with                    it asks further
    2024-11-05 to 2025-11-25    initialize                              ping, and what is offered
    2026-07-28                  any request, with the revision in       server/discover, and what is offered
                                its _meta

A request says of which revision it is, so a connection may mix them. Work has a thread of its own; all else is answered at
once. Errors are those of JSON-RPC; -32022 is the protocol's, of 2026-07-28. Batches are refused: 2025-03-26 alone has them.

Standard library only: the makers' own library is loaded for longer than the daemon takes to answer. Knows no tool and no
daemon.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Any, Protocol

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
PARSE, INVALID, NO_METHOD, BAD_PARAMS, INTERNAL, OTHER_REVISION = -32700, -32600, -32601, -32602, -32603, -32022
META = "io.modelcontextprotocol/"
# A client in order closes our input and waits two seconds before it sends SIGTERM (the makers' libraries do).
GRACE_S = 1.0

Json = dict[str, Any]
Id = str | int
Said = Callable[[float, float | None, str], None]  # done, of how many (None: not known), in words


class Refused(Exception):
    """A request that has an error for an answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Work(Protocol):
    """A request that takes time. `run` gives its result, or raises Refused; `leave` ends it early, from another thread."""

    def run(self) -> Json: ...
    def leave(self) -> None: ...


@dataclass(frozen=True)
class Offer:
    """What a server has. `fixed`: results by method. `works`: by method, what begins the work of a request from its params
    and from where its progress goes; raises Refused."""

    name: str
    version: str
    instructions: str
    fixed: Mapping[str, Json]
    works: Mapping[str, Callable[[Json, Said], Work]]


class Connection:
    """One client. `write` takes a line as bytes, whole."""

    def __init__(self, offer: Offer, write: Callable[[bytes], object]) -> None:
        self._offer = offer
        self._write = write
        self._greeted = False
        self._running: dict[Id, Work] = {}
        self._changed = Condition()  # held for each line that is written and each change of what runs

    def serve(self, lines: Iterable[bytes]) -> None:
        """Until the last line. What runs then is answered if it ends within GRACE_S; the rest is left."""
        for line in lines:
            if not line.isspace():
                self._hear(line)
        with self._changed:
            self._changed.wait_for(lambda: not self._running, GRACE_S)
            left, self._running = self._running, {}
        for work in left.values():
            work.leave()

    def _hear(self, line: bytes) -> None:
        message = None
        try:
            message = decoded(line)
            if is_request(message):
                self._answer(message["id"], message["method"], params_of(message))
            elif message.get("method") == "notifications/cancelled":
                self._cancel(message.get("params"))
        except Refused as refused:
            self._send({"id": id_of(message), "error": refused.error})

    def _answer(self, number: Id, method: str, params: Json) -> None:
        stateless = method != "initialize" and is_stateless(params)
        begin = self._offer.works.get(method)
        at_once = None if begin else self._at_once(method, params, stateless)
        if not (stateless or self._greeted or method == "ping"):
            raise Refused(BAD_PARAMS, f"{method} before initialize: params._meta names no {META}protocolVersion")
        if at_once is not None:
            self._send({"id": number, "result": self._worded(at_once, method, stateless)})
        elif begin is not None:
            with self._changed:
                if number in self._running:
                    raise Refused(INVALID, f"the id {number!r} is that of a request which runs")
                work = self._running[number] = begin(params, self._reports(params))
            Thread(target=self._run, args=(number, work, method, stateless), daemon=True).start()

    def _at_once(self, method: str, params: Json, stateless: bool) -> Json:
        if method in self._offer.fixed:
            return self._offer.fixed[method]
        match method, stateless:
            case "server/discover", True:
                return {"supportedVersions": [STATELESS], **self._abilities()}
            case "initialize", False:
                return self._greet(params)
            case "ping", False:
                return {}
        raise Refused(NO_METHOD, f"no method {method}")

    def _greet(self, params: Json) -> Json:
        asked = params.get("protocolVersion")
        if not isinstance(asked, str):
            raise Refused(BAD_PARAMS, "protocolVersion is no string")
        self._greeted = True
        spoken = asked if asked in HANDSHAKES else HANDSHAKES[-1]
        return {"protocolVersion": spoken, "serverInfo": self._who(), **self._abilities()}

    def _who(self) -> Json:
        return {"name": self._offer.name, "version": self._offer.version}

    def _abilities(self) -> Json:
        return {"capabilities": {"tools": {}, "resources": {}}, "instructions": self._offer.instructions}

    def _worded(self, result: Json, method: str, stateless: bool) -> Json:
        """2026-07-28 has more in a result: who answered, and for how long what is no call may be kept (not at all)."""
        if not stateless:
            return result
        kept = {} if method == "tools/call" else {"ttlMs": 0, "cacheScope": "private"}
        return {**result, **kept, "resultType": "complete", "_meta": {META + "serverInfo": self._who()}}

    def _run(self, number: Id, work: Work, method: str, stateless: bool) -> None:
        answer: Json = {"error": {"code": INTERNAL, "message": "a mistake in lore itself; its log has more"}}
        try:
            answer = {"result": self._worded(work.run(), method, stateless)}
        except Refused as refused:
            answer = {"error": refused.error}
        finally:  # a mistake of ours is answered, and shown as any in a thread
            with self._changed:
                if self._running.get(number) is work:  # not cancelled
                    self._send({"id": number, **answer})
                    del self._running[number]
                    self._changed.notify_all()

    def _cancel(self, params: Any) -> None:
        """Never answered: what has ended, or is no request of this client, is cancelled already."""
        number = id_of(params, "requestId")
        with self._changed:
            work = None if number is None else self._running.pop(number, None)
        if work is not None:
            work.leave()

    def _reports(self, params: Json) -> Said:
        """Where progress of a request goes: nowhere, unless the client asked for it."""
        meta = params.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) else None

        def said(done: float, total: float | None, words: str) -> None:
            known = {} if total is None else {"total": total}
            at = {"progressToken": token, "progress": done, **known, "message": words}
            self._send({"method": "notifications/progress", "params": at})

        return (lambda *_: None) if token is None else said

    def _send(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")) + "\n"
        with self._changed:
            self._write(
                line.encode("ascii")
            )  # JSON's escapes: half a surrogate pair, which a client may send, has no UTF-8


def decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Refused(PARSE, f"no JSON: {error}") from None


def is_request(message: Any) -> bool:
    """False for what has no answer: a notification, and an answer, as nothing was asked. Raises Refused for the rest."""
    if not isinstance(message, dict):
        raise Refused(INVALID, "a message is an object; batches are not taken")
    if "method" not in message and ("result" in message or "error" in message):
        return False
    if message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise Refused(INVALID, 'a request has "jsonrpc": "2.0" and a method')
    if "id" in message and id_of(message) is None:
        raise Refused(INVALID, "an id is a string or an integer")
    return "id" in message


def params_of(request: Json) -> Json:
    params = request.get("params")
    if not isinstance(params, dict | None):
        raise Refused(BAD_PARAMS, "params is no object")
    return params or {}


def id_of(message: Any, field: str = "id") -> Id | None:
    number = message.get(field) if isinstance(message, dict) else None
    return number if type(number) in (str, int) else None  # True is an int for Python


def is_stateless(params: Json) -> bool:
    """Whether the request is of the revision without a handshake. Raises Refused for one that is not spoken."""
    meta = params.get("_meta") or {}
    if not isinstance(meta, dict):
        raise Refused(BAD_PARAMS, "_meta is no object")
    revision = meta.get(f"{META}protocolVersion")
    if revision is None:
        return False
    if revision != STATELESS:
        data = {"supported": [STATELESS], "requested": revision}
        raise Refused(OTHER_REVISION, f"{revision} is not spoken without a handshake, only {STATELESS}", data)
    if not isinstance(meta.get(f"{META}clientCapabilities"), dict):
        raise Refused(BAD_PARAMS, f"_meta has no {META}clientCapabilities")
    return True
