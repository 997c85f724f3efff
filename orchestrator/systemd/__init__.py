"""systemd's units for the daemon: their text, and where it goes. Knows paths and systemd; nothing of models."""
