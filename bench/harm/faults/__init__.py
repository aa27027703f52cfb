"""What goes wrong in a mesh that serves: the scenarios of `bench.harm.chaos`."""
