"""The vocabulary of prompts: six blocks, what writes them, and how a model's chat template lays them out.

All that a plug-in's author imports. Imports nothing else of Lorekeep.
"""

from formatters.blocks import (
    FLOOR,
    ORDER,
    Block,
    BlockKind,
    BrokenFormatter,
    FormatterError,
    InvalidPrompt,
    Item,
    Prompt,
    Role,
    TemplateRefused,
)
from formatters.context import ArtifactInjector, TurnContext

__all__ = [
    "FLOOR",
    "ORDER",
    "ArtifactInjector",
    "Block",
    "BlockKind",
    "BrokenFormatter",
    "FormatterError",
    "InvalidPrompt",
    "Item",
    "Prompt",
    "Role",
    "TemplateRefused",
    "TurnContext",
]
