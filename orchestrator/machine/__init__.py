"""The governor at work: what the machine can bear now."""
