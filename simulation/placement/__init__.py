"""The placement daemon in virtual time, and the simulator as its evaluator."""
