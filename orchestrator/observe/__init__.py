"""What the daemon tells about itself while it runs: its logs. Its figures are those of `orchestrator.reports`."""
