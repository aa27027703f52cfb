"""What several dispatch policies share."""
