"""Keys of the people and programs that may use a mesh, and the file that keeps them."""
