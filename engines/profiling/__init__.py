"""``mesh profile``: measures engines, fits cost models and keeps them."""
