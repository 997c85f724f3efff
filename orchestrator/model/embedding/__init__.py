"""Search by meaning: which model embeds, its vectors made in the background, and the bridge between it and the codex."""
