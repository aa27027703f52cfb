"""A siege of a real mesh: attacks from a catalogue, beside an honest client that must not notice them."""
