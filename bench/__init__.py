"""Load generation, measurements and the scripts behind every figure the project states."""
