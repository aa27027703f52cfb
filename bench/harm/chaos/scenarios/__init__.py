"""What is done to a mesh, one function a scenario."""
