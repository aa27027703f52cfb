"""Routers before servers that run already, in turns."""
