"""Decides how many engines run: as few as keep the promises (Aladdin, section 5.2)."""
