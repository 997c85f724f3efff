"""Which plug-ins take part: of those that are installed, what the settings choose; and what became of them."""

import logging
from collections.abc import Iterable

from formatters.blocks import BrokenPlugin
from formatters.registry import SETTINGS, Registry, chosen, discover
from orchestrator.errors import SettingsError
from orchestrator.karma.records import KINDS
from orchestrator.prompt.situation import OUR_TOOLS
from orchestrator.relevance.gate import BUILTIN
from orchestrator.settings.model import PromptTable

log = logging.getLogger("lorekeep.plugins")


def installed(given: PromptTable) -> Registry:
    """Imports every plug-in that is installed. Never raises: its `failures` has the faults."""
    found = discover(reserved=BUILTIN | KINDS.keys() | OUR_TOOLS)
    return chosen(found, given.injectors, given.templates)


def refuse_absent(registry: Registry, names: Iterable[str]) -> None:
    """Raises SettingsError where the settings choose one of these names in vain."""
    wanted = set(names)
    for failure in registry.failures:
        if failure.distribution == SETTINGS and failure.entry in wanted:
            raise SettingsError(f"{failure.entry}: {failure.reason}", "take it out, or install its package")


class PluginFaults:
    """Plug-ins that could not be used, each told once: at the start, or when they fail while a prompt is written."""

    def __init__(self, first: Iterable[BrokenPlugin] = ()) -> None:
        self._told: dict[tuple[str, str], str] = {}
        for failure in first:
            self._tell(failure, str(failure))

    def in_a_prompt(self, failure: BrokenPlugin) -> None:
        """It failed while a prompt was written, which lacks what it would have added."""
        self._tell(failure, f"{failure} (while a prompt was written, which lacks it)")

    def in_a_call(self, failure: BrokenPlugin) -> None:
        """A tool failed when a model called it."""
        self._tell(failure, f"{failure} (when a model called it)")

    def words(self) -> tuple[str, ...]:
        return tuple(self._told.values())

    def _tell(self, failure: BrokenPlugin, words: str) -> None:
        key = (failure.distribution, failure.entry)
        if key not in self._told:
            self._told[key] = words
            log.warning("a plug-in is left out: %s", words)
