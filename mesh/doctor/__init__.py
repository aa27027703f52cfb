"""Looks at what a mesh needs of this machine, and says what is slow or missing and how to mend it."""
