"""Offers Prometheus the numbers of processes: plain numbers, their text, a listener for those without HTTP."""
