"""A mesh on several nodes of one machine, each with a network of its own, and what faults between nodes do to it."""
