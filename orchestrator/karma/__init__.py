"""Karma: typed, verified memories, and which of them a conversation is shown."""
