"""HTTP in front of `orchestrator.program`: routes, peers, sockets. Nothing here decides."""
