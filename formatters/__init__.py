"""The vocabulary of prompts: six blocks, what writes them, and how a model's chat template lays them out.

What a plug-in's author imports. Imports nothing else of Lorekeep.
"""

from formatters.blocks import BlockKind, Item
from formatters.context import ArtifactInjector, PromptTemplate, TurnContext
from formatters.plugins import ContextNode, MemoryKind, ModelTool

__all__ = [
    "ArtifactInjector",
    "BlockKind",
    "ContextNode",
    "Item",
    "MemoryKind",
    "ModelTool",
    "PromptTemplate",
    "TurnContext",
]
