"""Ray finds room for hosts, starts them, and starts them again elsewhere. The mesh's own messages never pass it."""
