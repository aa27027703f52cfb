"""What the placement daemon observes: traffic, engines, failures."""
