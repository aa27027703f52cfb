"""Every message of the mesh, by subject."""
