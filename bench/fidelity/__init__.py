"""The simulator beside the world: the mesh itself, and runs of vLLM that others measured. And its speed."""
