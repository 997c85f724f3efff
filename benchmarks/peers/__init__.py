"""Other people's code search beside ours: each in a process and an environment of its own, asked the same way."""
