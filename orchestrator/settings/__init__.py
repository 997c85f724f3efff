"""What a person may set: one frozen value in slices, read once at start, each setting with its origin."""

from orchestrator.errors import SettingsError
from orchestrator.settings.model import Settings
from orchestrator.settings.paths import Paths
from orchestrator.settings.sources import LoadedSettings, load

__all__ = ["LoadedSettings", "Paths", "Settings", "SettingsError", "load"]
