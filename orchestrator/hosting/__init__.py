"""The model and the machine that it runs on: how it is loaded, what it may take, its voice."""
