"""Steps that fail or hang, and what becomes of the engine."""
