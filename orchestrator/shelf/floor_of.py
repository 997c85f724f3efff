"""A codex's floor: what the prompts of all questions about it begin with."""

from formatters.context import CodexView, IdentityView, SigilView, TurnContext
from orchestrator.context.assembled import Floor
from orchestrator.context.composing import context_of
from orchestrator.hosting.voice import Voice


async def floor_of(codex: CodexView, identity: IdentityView, voice: Voice) -> Floor:
    """Taken from a question that nobody asked: what it says stands to the right of the floor."""
    turn = TurnContext(identity=identity, sigil=SigilView(name="owner", uid=0), codex=codex, query="?")
    return (await voice.composer.compose(context_of(turn))).assembled.floor
