"""Foundation of the mesh: topology, messages, sockets, membership, supervision and the command line."""

__version__ = "0.1.0"
