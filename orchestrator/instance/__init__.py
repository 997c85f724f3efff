"""One daemon per folder: lock files and folders that are its own."""
