"""HTTP in front of the port `orchestrator.service.Service`: routes, peers, sockets. Nothing here decides."""
