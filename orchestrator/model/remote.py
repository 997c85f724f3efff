"""What stands in for a model file and a machine where servers compute: a name, no weights, and no GPU is looked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from formatters.template import Placement, Way
from governor.model_shape import ModelShape
from governor.sensors import Sensors
from governor.settings import YieldSettings
from orchestrator.engine.builtin.files import is_builtin
from orchestrator.engine.client.client import EngineClient
from orchestrator.engine.model import EngineSpec, RemoteSpec
from orchestrator.errors import SettingsError
from orchestrator.machine.machine import Machine, ModelCosts
from orchestrator.machine.yielding import Yielding
from orchestrator.model.conditions import LoadingConditions
from orchestrator.model.embedding_model import EmbeddingChoice
from orchestrator.model.model_file import ModelFile
from orchestrator.model.offloading import offload_of
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.settings.sources import read_key_file
from orchestrator.wire.places import path_of

KEY_VARIABLE = "LORE_ENGINE_KEY"
NO_EMBEDDING = "a remote engine (engine.url) embeds nothing: no model is loaded here"
MOST_KEY = 16_384  # bytes of a key's file; more is another file


def remote_of(settings: Settings, environ: Mapping[str, str]) -> RemoteSpec | None:
    """None where a model is loaded here. Raises SettingsError for a key that cannot be read."""
    given, path = settings.engine, settings.model.path
    if not given.url:
        return None
    vocabulary = "" if not path or is_builtin(path) else str(path_of(path))
    return RemoteSpec(given.url, given.model, key_of(given.key_file, environ), vocabulary)


def key_of(file: str, environ: Mapping[str, str]) -> str:
    """Of the file, else of the variable; '' for none. No message of a fault has it."""
    if not file:
        key = environ.get(KEY_VARIABLE, "").strip()
        if key and not is_key(key):
            raise SettingsError(f"{KEY_VARIABLE} holds no key", "set it to the server's API key, in one line")
        return key
    path, found = read_key_file("engine.key_file", file, MOST_KEY)
    key = found.decode("ascii", "replace").strip()
    if len(found) > MOST_KEY or not is_key(key):
        raise SettingsError(f"engine.key_file: {path} holds no key", "write the server's API key into it, in one line")
    return key


def is_key(text: str) -> bool:
    """Whether a header takes it: a fault of one that it does not take would show it."""
    return bool(text) and text.isascii() and text.isprintable()


@dataclass(frozen=True)
class RemoteParts:
    """The parts of a `Host` whose engine are servers."""

    model: ModelFile
    conditions: LoadingConditions
    embedding: EmbeddingChoice
    client: EngineClient
    machine: Machine
    yielding: Yielding
    sensors: Sensors


def remote_parts(settings: Settings, paths: Paths, remote: RemoteSpec) -> RemoteParts:
    governor, offload = settings.for_governor(), offload_of(settings.model, offloads=False)
    sensors = Sensors(gpus=False)
    client = EngineClient(EngineSpec(remote.name, context=offload.context or 0, remote=remote))
    machine = Machine(sensors, governor, ModelCosts(NO_SHAPE, offload.plan, offload.context), client)
    never = YieldSettings(polite=False, idle_s=0)
    yielding = Yielding(
        client, never, paths.state / "paused-remote.json", settings.serve.shutdown_grace, machine.busy, machine.look
    )
    model = ModelFile(remote.name, Path(remote.name), NO_SHAPE, Placement(Way.SYSTEM), ())
    conditions = LoadingConditions(offload, None, governor.memory, loaded=offload, coverage=settings.for_coverage())
    wanted = settings.embedding.model
    embedding = EmbeddingChoice(wanted, fault=NO_EMBEDDING) if wanted else EmbeddingChoice()
    return RemoteParts(model, conditions, embedding, client, machine, yielding, sensors)


NO_SHAPE = ModelShape(
    architecture="remote",
    name="remote",
    trained=0,
    embedding=0,
    heads=0,
    kv_heads=0,
    vocabulary=0,
    feed_forward=0,
    layers=(),
    window=0,
    compressed=False,
    input=0,
    output=0,
    tied=False,
    by_type={},
    unpredictable=None,
)
