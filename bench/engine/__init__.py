"""What one engine costs and how fast it is."""
