"""A codex's floor: what the prompts of all questions about it begin with."""

from formatters.context import CodexView, IdentityView, SigilView, TurnContext
from orchestrator.model.chat_model import ChatModel
from orchestrator.prompt.assembled import Floor
from orchestrator.prompt.composing import context_of


async def floor_of(codex: CodexView, identity: IdentityView, voice: ChatModel) -> Floor:
    """Taken from a question that nobody asked: what it says stands to the right of the floor."""
    turn = TurnContext(identity=identity, sigil=SigilView(name="owner", uid=0), codex=codex, query="?")
    return (await voice.composer.compose(context_of(turn))).assembled.floor
