"""Whether settings can be used: what would keep `lore serve` from starting with them, or from a part of its work.

The checks are those of the daemon's start, but nothing is taken or made: no socket, and no file of a built-in model.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.api.sigils import Sigils
from orchestrator.api.sockets import check_path, group_number, tcp_address
from orchestrator.errors import LoreError
from orchestrator.model.embedding_model import find_embedding
from orchestrator.model.host import model_of
from orchestrator.model.model_file import DEFAULT, builtins
from orchestrator.model.remote import NO_EMBEDDING, remote_of
from orchestrator.plugins import installed, refuse_absent
from orchestrator.relevance.configuration import gate_rules
from orchestrator.relevance.gate import catalogue
from orchestrator.settings import LoadedSettings, Paths
from orchestrator.settings.archive import remote_archive
from orchestrator.settings.model import Settings
from orchestrator.settings.sources import refuse_unknown_identity
from orchestrator.wire.places import GATE_FILE


@dataclass(frozen=True)
class Unusable:
    """A setting that cannot be used; `origin` is the file, variable or option that set it, '' for a default."""

    key: str
    origin: str
    message: str
    hint: str


def unusable(loaded: LoadedSettings, paths: Paths) -> list[Unusable]:
    """Reads the headers of the models that are named."""
    return list(faults_of(loaded.settings, loaded.origins, paths))


def faults_of(settings: Settings, origins: Mapping[str, str], paths: Paths) -> Iterator[Unusable]:
    for key, check in checks(settings, paths):
        try:
            check()
        except LoreError as error:
            yield Unusable(key, origins.get(key, ""), error.message, error.hint)
    if fault := embedding_fault(settings, paths):
        key = "embedding.model"
        yield Unusable(key, origins.get(key, ""), fault, "name another GGUF file that embeds, or leave it out")


def checks(settings: Settings, paths: Paths) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each with the key that it is about; they raise LoreError."""
    given = settings.serve
    yield "serve.socket", partial(check_path, Path(given.socket or paths.socket))
    if given.socket_group:
        yield "serve.socket_group", partial(group_number, given.socket_group)
    if given.tcp:
        yield "serve.tcp", partial(tcp_address, given.tcp)
    if settings.engine.url:
        yield "engine.key_file", partial(remote_of, settings, os.environ)
    elif (settings.model.path or DEFAULT) not in not_made(paths, embeds=False):
        yield "model.path", partial(model_of, settings, paths)
    if settings.archive.uri:
        yield "archive.key_file", partial(remote_archive, settings, paths.archive)
    if settings.identity.default:
        yield "identity.default", partial(refuse_unknown_identity, settings.identity.default, paths.identities)
    plugins = installed(settings.prompt)
    yield "prompt.injectors", partial(refuse_absent, plugins, settings.prompt.injectors)
    yield "prompt.templates", partial(refuse_absent, plugins, settings.prompt.templates)
    yield GATE_FILE, partial(gate_rules, paths.gate_rules, catalogue(plugins.nodes.values()))
    yield "sigils", partial(Sigils.of, settings, os.geteuid())


def embedding_fault(settings: Settings, paths: Paths) -> str:
    if settings.engine.url:
        return NO_EMBEDDING if settings.embedding.model else ""
    if settings.embedding.model in not_made(paths, embeds=True):
        return ""
    return find_embedding(settings.embedding, paths.models).fault


def not_made(paths: Paths, *, embeds: bool) -> set[str]:
    """Built-in models of this kind whose files are made on first need: hundreds of megabytes, and nothing to doubt."""
    return {one.id for one in builtins(paths.models) if one.about and one.embeds is embeds}
