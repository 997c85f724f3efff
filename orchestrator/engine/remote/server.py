"""One server, over HTTP: what it serves, its tokens, its health, and one answer as a stream of events.

Speaks to the URL that the user named and to nothing else: no redirect is followed, no proxy of the environment is taken.
The key goes into one header and into no message.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2

from orchestrator.engine.messages import well_formed
from orchestrator.engine.remote.replies import (
    END,
    GIVEN_UP,
    Json,
    ServedModel,
    ServerFault,
    ServerKind,
    StreamEvent,
    event_of,
    fault_of,
    served_model,
    shortened,
    table,
    whole,
)
from orchestrator.engine.remote.requests import Request
from orchestrator.engine.remote.tokens import token_ids

CONNECT_S = 5.0
REPLY_S = 30.0  # for all but an answer
SILENCE_S = 600.0  # of an answer: a prompt in a long queue is silent until it is computed
JSON = {"Content-Type": "application/json"}
MOST_BODY = 64 * 1024 * 1024  # bytes of a reply that is no stream: a page of another program must not fill the memory
MOST_LINE = 8 * 1024 * 1024  # and of a line of one that is


class RemoteServer:
    """`url`: below it are OpenAI's routes; what is beside them is below `root`."""

    def __init__(self, url: str, key: str = "") -> None:
        self.url = url
        self.root = url.removesuffix("/v1")
        self._http = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(REPLY_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16),
            follow_redirects=False,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    # -- what it is

    async def model(self, wanted: str) -> ServedModel:
        """Raises ServerFault."""
        listed = await self._asked("GET", f"{self.url}/models")
        try:
            found = served_model(listed, wanted)
        except ServerFault as fault:
            raise self._told(fault) from fault
        if found.kind is not ServerKind.LLAMA:
            return found
        props = await self._asked("GET", f"{self.root}/props")
        context = whole(table(props.get("default_generation_settings")).get("n_ctx"))
        texts = {ours: str(props.get(theirs) or "") for ours, theirs in PROPS.items()}
        return ServedModel(found.id, found.kind, context or found.context, found.parameters, **texts)

    async def healthy(self) -> bool:
        """Whether it takes something new. One without such a route does. Raises ServerFault where it cannot be reached."""
        async with self._sent("GET", f"{self.root}/health") as reply:
            return reply.status_code != 503

    async def metrics(self) -> str:
        """'' where it has none."""
        async with self._sent("GET", f"{self.root}/metrics") as reply:
            return (await self._read(reply)).decode("utf-8", "replace") if reply.status_code == 200 else ""

    # -- its tokens

    async def ids(self, model: ServedModel, text: str, *, control: bool, around: bool = False) -> list[int]:
        """Of a text; `around`: with those that the model wants at its beginning. Raises ServerFault."""
        ours = {"content": text, "add_special": around, "parse_special": control}
        theirs = {"model": model.id, "prompt": text, "add_special_tokens": around}
        body = ours if model.kind is ServerKind.LLAMA else theirs
        found = token_ids(await self._asked("POST", f"{self.root}/tokenize", body))
        if found is None:
            raise ServerFault(f"{self.url} answers /tokenize without tokens", lasting=True)
        return found

    async def text(self, model: ServedModel, ids: Sequence[int]) -> str:
        body = {"tokens": [*ids]} if model.kind is ServerKind.LLAMA else {"model": model.id, "tokens": [*ids]}
        reply = await self._asked("POST", f"{self.root}/detokenize", body)
        return str(next((reply[name] for name in ("content", "prompt", "text") if name in reply), ""))

    # -- an answer

    async def answer(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """The events of an answer, whole: one that says why it ended was among them. Raises ServerFault, also where the
        stream ends before."""
        finished = False
        async with self._sent("POST", f"{self.url}/{request.path}", request.body, SILENCE_S) as reply:
            if reply.status_code != 200:
                raise await self._refused(reply)
            async with aclosing(self._lines(reply)) as lines:
                async for line in lines:
                    event = self._event(line)
                    if event is END:
                        break
                    if event is not None:
                        if event.finish in GIVEN_UP:
                            raise ServerFault(f"{self.url} gave its answer up ({event.finish})")
                        finished |= bool(event.finish)
                        yield event
        if not finished:
            raise ServerFault(f"{self.url} ended its answer in the middle")

    def _event(self, line: str) -> StreamEvent | None:
        try:
            return event_of(line)
        except ServerFault as fault:
            raise self._told(fault) from fault

    async def _lines(self, reply: httpx2.Response) -> AsyncGenerator[str]:
        """Ended by line feeds alone: JSON may hold U+2028 and its like as they are, which httpx ends a line at."""
        held = b""
        try:
            async for part in reply.aiter_bytes():
                *lines, held = (held + part).split(b"\n")
                for line in lines:
                    yield line.decode("utf-8", "replace")
                if len(held) > MOST_LINE:
                    raise ServerFault(f"{self.url} sent a line of more than {MOST_LINE >> 20} MiB")
            yield held.decode("utf-8", "replace")
        except httpx2.HTTPError as error:
            raise ServerFault(f"{self.url} ended its answer in the middle: {words_of(error)}") from error

    # -- HTTP

    async def _asked(self, method: str, url: str, body: Json | None = None) -> Json:
        async with self._sent(method, url, body) as reply:
            if reply.status_code != 200:
                raise await self._refused(reply)
            try:
                found = json.loads(await self._read(reply))
            except (ValueError, RecursionError) as error:
                raise ServerFault(
                    f"{url} answers no JSON: is this an OpenAI-compatible server?", lasting=True
                ) from error
        if not isinstance(found, dict):
            raise ServerFault(f"{url} answers no object: is this an OpenAI-compatible server?", lasting=True)
        return found

    @asynccontextmanager
    async def _sent(
        self, method: str, url: str, body: Json | None = None, silence_s: float = REPLY_S
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(silence_s, connect=CONNECT_S)
        content = None if body is None else well_formed(json.dumps(body, ensure_ascii=False)).encode()
        try:
            async with self._http.stream(method, url, content=content, headers=JSON, timeout=timeout) as reply:
                yield reply
        except httpx2.InvalidURL as error:
            raise ServerFault(f"{url} is no URL: {error}", lasting=True) from error
        except httpx2.HTTPError as error:
            raise ServerFault(f"{self.url} cannot be reached: {words_of(error)}") from error

    async def _refused(self, reply: httpx2.Response) -> ServerFault:
        if 300 <= reply.status_code < 400:
            where = shortened(reply.headers.get("location", "elsewhere"))
            return ServerFault(f"{self.url} points to {where}: name that in engine.url, if it is meant", lasting=True)
        body = await self._read(reply)
        try:
            said: Any = json.loads(body)
        except (ValueError, RecursionError):
            said = body.decode("utf-8", "replace")
        return self._told(fault_of(reply.status_code, said, reply.headers.get("retry-after", "")))

    async def _read(self, reply: httpx2.Response) -> bytes:
        found = bytearray()
        async for part in reply.aiter_bytes():
            found += part
            if len(found) > MOST_BODY:
                raise ServerFault(f"{self.url} answers with more than {MOST_BODY >> 20} MiB", lasting=True)
        return bytes(found)

    def _told(self, fault: ServerFault) -> ServerFault:
        return ServerFault(f"{self.url} {fault}", fault.reason, lasting=fault.lasting, elsewhere=fault.elsewhere)


PROPS = {"template": "chat_template", "bos": "bos_token", "eos": "eos_token"}


def words_of(error: Exception) -> str:
    """What a person can do something with: httpx says nothing of a time that is over."""
    if isinstance(error, httpx2.TimeoutException):
        return "it did not answer in time"
    return shortened(str(error)) or type(error).__name__
