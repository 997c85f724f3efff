"""The errors of this package.

A fault of a plug-in names its distribution, because a user can upgrade or uninstall a distribution.
"""


class FormatterError(Exception):
    """Base of all faults of this package."""


class InvalidPrompt(FormatterError):
    """Items, blocks or turns that break a law of the prompt; the message names the law and the item."""


class BrokenFormatter(FormatterError):
    """A formatter that cannot be loaded, registered or used. `distribution` is the package that brought it."""

    def __init__(self, distribution: str, entry: str, reason: str) -> None:
        super().__init__(f"formatter {entry!r} of {distribution}: {reason}")
        self.distribution = distribution
        self.entry = entry
        self.reason = reason


class TemplateRefused(FormatterError):
    """A chat template that cannot be compiled, refuses these messages, or cannot be cut at our seams."""
