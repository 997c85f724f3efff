"""The governor at work: what the machine has room for now."""
