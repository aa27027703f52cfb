"""Models of random weights, of any size, for benches of speed."""
