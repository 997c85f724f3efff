"""Parts of `make endurance`: each works on a real daemon, up to a number or a time, and yields figures and bounds."""
