"""A real mesh on this machine: started, loaded, watched, and compared with what was predicted of it."""
