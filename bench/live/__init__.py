"""A real mesh on this machine: started, loaded and watched."""
