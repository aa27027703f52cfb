"""Services that share two engines of a live mesh."""
