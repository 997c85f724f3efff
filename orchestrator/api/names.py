"""Model ids: those that there are, and which codex or model a client's name means.

    ""  lore            the daemon chooses: the codex of client.cwd, else the only one
    lore/NAME           the codex NAME; never another model's place
    NAME                the bare model of that name, else the codex

Case counts only between names that differ in nothing else, `:latest` behind a name counts never, and the beginning of a
name is enough where only one begins so. Any other id is refused, or answered as `clients.unknown_model` says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.api.http import ApiCall, route
from orchestrator.errors import NotFound, instead
from orchestrator.wire.answers import BARE
from orchestrator.wire.models import ModelCard, ModelCards
from orchestrator.wire.names import ANY_CODEX, CODEX_PREFIX, spelled, without_tag

REFUSE, DEFAULT = "refuse", "default"  # of clients.unknown_model; anything else is a model id


class ModelNotFound(NotFound):
    code = "model_not_found"


def no_model(name: str) -> ModelNotFound:
    return ModelNotFound(f"no model {name}", "GET /v1/models lists them")


@dataclass(frozen=True)
class KnownModels:
    """What can be named."""

    codices: tuple[str, ...]
    models: tuple[str, ...]
    floors: Mapping[str, int] = field(default_factory=dict)  # tokens of a codex's prefix, by its id

    @property
    def ids(self) -> list[str]:
        return [*(f"{CODEX_PREFIX}{name}" for name in self.codices), *self.models]


@dataclass(frozen=True)
class NamedModel:
    """`codex`: None where the daemon chooses, BARE for the bare model. `notice`: that another answers than was named."""

    codex: str | None
    notice: str = ""


async def known_models(call: ApiCall) -> KnownModels:
    codices = await call.service.codices(call.principal)
    floors = {f"{CODEX_PREFIX}{codex.name}": codex.floor_tokens for codex in codices}
    return KnownModels(tuple(codex.name for codex in codices), (await call.service.loaded_model(),), floors)


def codex_of(model: str) -> str | None:
    """The codex that an id names by its prefix, in any case; None where it names none so."""
    plain = without_tag(model)
    return plain[len(CODEX_PREFIX) :] if plain.casefold().startswith(CODEX_PREFIX) else None


async def is_missing(call: ApiCall, model: str) -> bool:
    """Whether an id names a codex by its prefix that there is not."""
    codex = codex_of(model)
    return codex not in (None, BARE) and spelled(codex or "", (await known_models(call)).codices) is None


async def refuse_missing(call: ApiCall, model: str) -> None:
    """Raises ModelNotFound for an id of a codex that there is not."""
    if await is_missing(call, model):
        raise no_model(model)


async def named_model(call: ApiCall, model: str) -> NamedModel:
    """What a client's id means. A codex that it names is looked up by who answers. Raises ModelNotFound."""
    plain = without_tag(model)
    if plain.casefold() in ("", ANY_CODEX):
        return NamedModel(None)
    if (codex := codex_of(plain)) is not None:
        return NamedModel(codex)
    return chosen(model, await known_models(call), call.request.app.state.unknown_model)


def chosen(model: str, names: KnownModels, unknown: str) -> NamedModel:
    """The same of an id without prefix, by the names that there are. Raises ModelNotFound, which names them."""
    plain = without_tag(model)
    found = spelled(plain, (*names.models, *names.codices))
    if found is not None:
        return NamedModel(BARE if found in names.models else plain)  # who answers tells whether it was shortened
    if unknown == REFUSE:
        raise ModelNotFound(f"no model {model}", instead(model, names.ids, "`lore load` makes one", "GET /v1/models"))
    if unknown == DEFAULT:
        return NamedModel(None, f"there is no model {model}: the default answers (clients.unknown_model)")
    codex = codex_of(unknown)
    there = NamedModel(codex) if codex is not None else chosen(unknown, names, REFUSE)
    return NamedModel(there.codex, f"there is no model {model}: {unknown} answers (clients.unknown_model)")


# -- the list of them


@route("GET", "/v1/models", "query", "codex:read")
async def models(call: ApiCall) -> ModelCards:
    """OpenAI's list of models: a codex is `lore/NAME`, the bare model its own name."""
    known, window = await known_models(call), await call.service.window()
    return ModelCards(object="list", data=tuple(card(one, known, window) for one in known.ids))


@route("GET", "/v1/models/{name:path}", "query", "codex:read", faults=("model_not_found",))
async def model(call: ApiCall) -> ModelCard:
    """One of them."""
    known = await known_models(call)
    if call.name not in known.ids and f"{CODEX_PREFIX}{call.name}" not in known.ids:
        raise no_model(call.name)
    return card(call.name, known, await call.service.window())


def card(name: str, known: KnownModels, window: int | None) -> ModelCard:
    """Clients size their prompts by it: what the prefix of a codex takes is not theirs."""
    floor = known.floors.get(name, known.floors.get(f"{CODEX_PREFIX}{name}", 0))
    room = None if window is None else max(0, window - floor)
    return ModelCard(id=name, object="model", created=0, owned_by="lorekeep", context_length=room, max_model_len=room)
