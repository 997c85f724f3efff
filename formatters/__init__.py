"""The vocabulary of prompts: six blocks, what writes them, and how a model's chat template lays them out.

All that a plug-in's author imports. Imports nothing else of Lorekeep.
"""

from formatters.blocks import FLOOR, ORDER, Block, BlockKind, Item, Prompt, Role
from formatters.context import TurnContext
from formatters.errors import BrokenFormatter, FormatterError, InvalidPrompt, TemplateRefused
from formatters.formatter import ArtifactInjector, Formatter, PromptTemplate

__all__ = [
    "FLOOR",
    "ORDER",
    "ArtifactInjector",
    "Block",
    "BlockKind",
    "BrokenFormatter",
    "Formatter",
    "FormatterError",
    "InvalidPrompt",
    "Item",
    "Prompt",
    "PromptTemplate",
    "Role",
    "TemplateRefused",
    "TurnContext",
]
