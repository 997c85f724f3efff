"""The shapes that cross the socket, shared by daemon and command line. Keys are only ever added."""
