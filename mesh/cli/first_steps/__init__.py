"""Commands for those who begin: what is missing, a first topology, a model served at once, completion in the shell."""
