"""Conversations, kept over restarts: who asked what, what was answered, and the very tokens of it.

Knows no model and no prompt. One SQLite file; history is only ever added to.
"""

from orchestrator.answering.sessions.records import Session, StoredTurn
from orchestrator.answering.sessions.store import SessionStore

__all__ = ["Session", "SessionStore", "StoredTurn"]
