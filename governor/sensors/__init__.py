"""Where readings come from: the NVIDIA driver and the host's own files."""
