"""Text to token ids and back, exactly as the loaded model does it; content never becomes a control token."""

from orchestrator.engine.vocab.vocabulary import Vocabulary

__all__ = ["Vocabulary"]
