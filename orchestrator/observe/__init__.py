"""What the daemon tells about itself while it runs: logs, and later metrics."""
