"""The running program: in which order its parts start and stop, and that it is the only one in its folders."""
