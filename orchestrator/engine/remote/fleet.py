"""The servers of an engine: what they serve, how each stands, which one has a key; looked at again and again.

All of them must serve what the first one did: the same model, in the same tokens, with as much context. One that serves
another model gets no prompt, because the ids of its tokens would be other words.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from orchestrator.engine.messages import InferenceJob, Reason
from orchestrator.engine.model import RemoteSpec
from orchestrator.engine.remote.metrics import Load, load_of, pressure_of
from orchestrator.engine.remote.replies import ServedModel, ServerFault, ServerKind, StreamEvent, mistake
from orchestrator.engine.remote.requests import TEMPLATE, PromptWay, Request, request_of
from orchestrator.engine.remote.routing import SentPrompts, Stand, Standing, chosen
from orchestrator.engine.remote.server import RemoteServer
from orchestrator.engine.remote.tokens import SAMPLE, MarkedTokens, ModelTokens, ServerTokens, VocabularyTokens
from orchestrator.engine.snapshot import ServerState

log = logging.getLogger("lorekeep.engine")

AGAIN_S = 2.0  # between two tries to find a first server
SLOW_S = 2.0  # after which it is told which server is waited for
LOOKS_S = 5.0  # that a start waits for the first looks at the other servers
PROBE_S = 120.0  # for one token, behind the queue that a server may have; a child that loads must speak within 600
PROBE = "a"
PROBE_JOB = InferenceJob(ticket=0, floor="", tail=b"", owner=0, max_tokens=1)
T = TypeVar("T")


@dataclass(frozen=True)
class Served:
    """What the servers serve, and how prompts go to them. `context`: tokens of the longest prompt and answer. `sample`: ids
    by which another vocabulary is told from this one; none where no server tokenises."""

    model: ServedModel
    context: int
    way: PromptWay
    tokens: ModelTokens
    template: str
    bos: str = ""
    eos: str = ""
    sample: tuple[int, ...] = ()


class Fleet:
    """Owns the servers. `changed` is called when one stands otherwise, or has another load."""

    def __init__(self, spec: RemoteSpec, context: int, changed: Callable[[], None] = lambda: None) -> None:
        self._spec = spec
        self._context = context
        self._changed = changed
        self._servers = {url: RemoteServer(url, spec.key) for url in spec.urls}
        self._stands = {url: Stand(Standing.DOWN, "it has not said yet what it serves") for url in spec.urls}
        self._loads = {url: Load() for url in spec.urls}
        self._kinds: dict[str, ServerKind] = {}
        self.prompts = {url: SentPrompts() for url in spec.urls}
        self._served: Served | None = None
        self._asked = spec.urls[0]  # for tokens
        self._sooner = {url: asyncio.Event() for url in spec.urls}  # it is to be looked at before it was due

    @property
    def served(self) -> Served:
        assert self._served is not None, "the fleet has begun"
        return self._served

    @property
    def states(self) -> tuple[ServerState, ...]:
        return tuple(
            ServerState(
                url,
                self._kinds.get(url, "") or "unknown",
                stand.standing.value,
                stand.reason,
                self._loads[url].running,
                self._loads[url].waiting,
                self._loads[url].cache,
            )
            for url, stand in self._stands.items()
        )

    @property
    def pressure(self) -> float | None:
        return pressure_of(load for url, load in self._loads.items() if self._stands[url].standing is Standing.UP)

    # -- life

    async def begin(self, waits: Callable[[str], None]) -> Served:
        """Once one of the servers can be used, and the others were looked at or let that be waited for. `waits` hears again
        and again why none can be yet. Raises ServerFault where none ever will as it is."""
        served = await self._found(waits)
        while served is None:
            await asyncio.sleep(AGAIN_S)
            served = await self._found(waits)
        self._served = served
        with suppress(TimeoutError):  # who has not answered gets no prompt before it is known what it serves
            async with asyncio.timeout(LOOKS_S):
                await asyncio.gather(*map(self.look, self._servers))
        return served

    async def _found(self, waits: Callable[[str], None]) -> Served | None:
        """What the first server serves that can be used. Raises ServerFault."""
        faults = []
        for url, server in self._servers.items():
            slow = asyncio.get_running_loop().call_later(SLOW_S, waits, f"{url} has not said yet what it serves")
            try:
                served = await self._first(server)
                self._stands[url] = Stand()
                return served
            except ServerFault as fault:
                faults.append(fault)
            finally:
                slow.cancel()
        if all(fault.lasting for fault in faults):
            raise faults[0]
        waits(f"{'; '.join(map(str, faults))}; asked again every {AGAIN_S:.0f} s")
        return None

    async def watch(self) -> None:
        """Looks at each server when it is due, whatever the others take; never returns."""
        await asyncio.gather(*map(self._watch, self._servers))

    async def _watch(self, url: str) -> None:
        while True:
            self._sooner[url].clear()
            pause = max(0.05, self._stands[url].look_at - time.monotonic())
            try:
                async with asyncio.timeout(pause):
                    await self._sooner[url].wait()
            except TimeoutError:
                await self.look(url)

    async def close(self) -> None:
        for server in self._servers.values():
            with suppress(Exception):  # it ends in any case
                await server.close()

    # -- one server

    async def look(self, url: str) -> None:
        """How it stands now. Where it came to stand otherwise meanwhile, that is newer than what this look saw."""
        server, before, load = self._servers[url], self._stands[url], Load()
        try:
            if not await server.healthy():
                stand = before.drained(time.monotonic())
            else:
                load = await self._checked(server)
                stand = before.well(time.monotonic())
        except ServerFault as fault:
            stand = before.failed(str(fault), time.monotonic(), lasting=fault.lasting)
        except Exception as fault:  # of ours: the looking goes on
            log.exception("%s was not looked at to the end", url)
            stand = before.failed(mistake(fault), time.monotonic())
        if self._stands[url] is not before:
            return
        self._stand(url, stand)
        if load != self._loads[url]:
            self._loads[url] = load
            self._changed()

    def failed(self, url: str, fault: ServerFault) -> None:
        """It could not answer: it is looked at soon. Of several that it failed at once the first one counts."""
        if self._stands[url].standing is not Standing.DOWN:
            self._stand(url, self._stands[url].failed(str(fault), time.monotonic()))
            self._sooner[url].set()

    def other_model(self, url: str, name: str) -> None:
        """Its reply names another model than it was asked for: looked at next, and what it was sent is not counted on."""
        log.warning("%s answered as %s: what it has in its cache is not known any more", url, name)
        self.prompts[url].forget()
        self._stands[url] = replace(self._stands[url], look_at=time.monotonic())
        self._sooner[url].set()

    @property
    def none_left(self) -> ServerFault:
        """Why no server is asked."""
        drained = any(stand.standing is Standing.DRAINED for stand in self._stands.values())
        why = "; ".join(stand.reason for stand in self._stands.values() if stand.reason)
        return ServerFault(f"no server can be asked: {why}", Reason.BUSY if drained else Reason.ENGINE)

    def choose(self, key: str, tried: Collection[str] = ()) -> str | None:
        return chosen(key, self._stands, tried)

    def answer(self, url: str, request: Request) -> AsyncGenerator[StreamEvent]:
        """Raises ServerFault."""
        return self._servers[url].answer(request)

    def _stand(self, url: str, stand: Stand) -> None:
        before, self._stands[url] = self._stands[url], stand
        if (before.standing, before.reason) == (stand.standing, stand.reason):
            return
        if stand.standing is Standing.DOWN:
            self.prompts[url].forget()  # it may come back with an empty cache
            log.warning("a server is not used: %s", stand.reason)
        else:
            log.info("%s is %s %s", url, stand.standing, stand.reason)
        self._changed()

    async def _checked(self, server: RemoteServer) -> Load:
        """Its load. Raises ServerFault where it does not serve what it did."""
        model, served = await server.model(self._spec.model), self.served
        self._kinds[server.url] = model.kind
        if model.id != served.model.id:
            raise ServerFault(
                f"{server.url} serves {model.id}, and this daemon began with {served.model.id}: restart it to use that",
                lasting=True,
            )
        if 0 < model.context < served.context:
            raise ServerFault(
                f"{server.url} takes {model.context:,} tokens, and {served.context:,} are planned with: restart the daemon",
                lasting=True,
            )
        if served.sample and tuple(await server.ids(model, SAMPLE, control=False)) != served.sample:
            raise ServerFault(
                f"{server.url} has another vocabulary under the name {model.id}: restart the daemon to use it",
                lasting=True,
            )
        return load_of(await server.metrics(), model.kind)

    # -- what it is that is served

    async def _first(self, server: RemoteServer) -> Served:
        model = await server.model(self._spec.model)
        self._kinds[server.url] = model.kind
        context = min(filter(None, (model.context, self._context)), default=0)
        if not context:
            raise ServerFault(f"{server.url} does not tell its context: set model.context", lasting=True)
        file = self._file
        teller = model if model.template or file is None else file
        template, bos, eos = teller.template, teller.bos, teller.eos
        tokens, sample = await self._tokens(server, model, template, file)
        way = await self._way(server, model, tokens) if template else PromptWay.CHAT
        if way is PromptWay.CHAT:
            return Served(model, context, way, MarkedTokens(tokens), TEMPLATE, sample=sample)
        return Served(model, context, way, tokens, template, bos, eos, sample)

    @cached_property
    def _file(self) -> VocabularyTokens | None:
        """Of the file that the settings name: read once, however often a server is tried. Raises ServerFault."""
        return VocabularyTokens(Path(self._spec.vocabulary)) if self._spec.vocabulary else None

    async def _tokens(
        self, server: RemoteServer, model: ServedModel, template: str, file: VocabularyTokens | None
    ) -> tuple[ModelTokens, tuple[int, ...]]:
        """By the vocabulary file where the server gives the same ids or none, else by the server; and the ids of SAMPLE,
        where the server gives them. Raises ServerFault."""
        try:
            sample = tuple(await server.ids(model, SAMPLE, control=False))
        except ServerFault as fault:
            if not fault.lasting and fault.reason is not Reason.SAMPLING:
                raise
            if file is not None:
                return file, ()
            tip = "set model.path to a GGUF file of the same model: its vocabulary is read, and no weights"
            raise ServerFault(f"{server.url} counts no tokens (no /tokenize); {tip}", lasting=True) from fault
        found = ServerTokens(
            model.id,
            lambda text, control: self._any(lambda one: one.ids(model, text, control=control)),
            lambda ids: self._any(lambda one: one.text(model, ids)),
            template,
        )
        self._asked = server.url
        await found.begin()
        if file is not None:
            if await sampled(file) == await sampled(found):
                return file, sample  # without a trip to the server for each text
            log.warning("%s is not the vocabulary of %s, which is asked for tokens", self._spec.vocabulary, server.url)
        plain = await server.ids(model, PROBE, control=True)
        found.adds_bos = (await server.ids(model, PROBE, control=True, around=True))[: -len(plain)] != []
        return found, sample

    async def _way(self, server: RemoteServer, model: ServedModel, tokens: ModelTokens) -> PromptWay:
        """The best that the server takes: it is asked for one token each way. Raises ServerFault."""
        for way, prompt in ((PromptWay.IDS, [*await tokens.ids(PROBE, control=False)]), (PromptWay.TEXT, PROBE)):
            request = request_of(PROBE_JOB, prompt, model.kind, model.id)
            try:
                async with asyncio.timeout(PROBE_S), aclosing(server.answer(request)) as events:
                    await anext(events)  # it has taken the prompt; what else it says is not waited for
                return way
            except TimeoutError as fault:
                raise ServerFault(f"{server.url} computed no token of one word in {PROBE_S:.0f} s") from fault
            except ServerFault as fault:
                if not fault.lasting and fault.reason is not Reason.SAMPLING:
                    raise
                log.info("%s takes no prompt as %s: %s", server.url, way, fault)
        return PromptWay.CHAT

    async def _any(self, work: Callable[[RemoteServer], Awaitable[T]]) -> T:
        """Of the server that was asked last, else of another that is up. Raises ServerFault."""
        asked = self._asked  # by another call it may be another one when this call has failed
        try:
            return await work(self._servers[asked])
        except ServerFault as fault:
            if fault.lasting or fault.reason is not Reason.ENGINE:  # of this text, and not of the server
                raise
            self.failed(asked, fault)
            other = next((url for url in self._servers if self._stands[url].standing is Standing.UP), None)
            if other is None:
                raise
            self._asked = other
            return await work(self._servers[other])


async def sampled(tokens: ModelTokens) -> list[list[int]]:
    """A text as content, and as the template's own."""
    return [[*await tokens.ids(SAMPLE, control=control)] for control in (False, True)]
