"""The one fault of this package."""

from orchestrator.errors import LoreError


class SettingsError(LoreError):
    """A setting that cannot be used: the message names its origin and key."""

    code = "invalid_settings"
