"""Commands of the `mesh` command line that are about routing."""
