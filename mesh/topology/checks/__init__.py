"""Checks what must hold in a topology beyond the values of single keys."""
