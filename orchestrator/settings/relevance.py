"""The rules of the relevance gate: the shipped file, over it the installation's, over that the user's."""

from collections.abc import Mapping
from pathlib import Path

from formatters.plugins import ContextNode
from orchestrator.errors import SettingsError
from orchestrator.relevance.configuration import FILE, read_rules
from orchestrator.relevance.gate import GateRules
from orchestrator.settings.paths import SYSTEM_CONFIG, Paths


def gate_files(paths: Paths) -> tuple[Path, ...]:
    """Where rules may be: beside each config.toml."""
    return tuple(dict.fromkeys((SYSTEM_CONFIG.with_name(FILE), paths.config / FILE)))


def gate_rules(paths: Paths, nodes: Mapping[str, ContextNode]) -> GateRules:
    """`nodes`: all that rules may name. Raises SettingsError with the faulty file and rule."""
    texts: list[str] = []
    for file in gate_files(paths):
        try:
            if file.is_fifo():
                raise OSError("it is a pipe: a start would wait for whoever writes to it")
            texts.append(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{file} cannot be read: {error}", "mend or remove the file") from error
        try:
            read_rules(nodes, *texts)  # at each file, so that a fault names its own
        except SettingsError as fault:
            raise SettingsError(f"{file}: {fault.message}", fault.hint) from fault
    return read_rules(nodes, *texts)
