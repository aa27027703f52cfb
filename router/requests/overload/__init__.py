"""Decides who gets in, who waits and who is told to come back, where more is wanted than there is."""
