"""How true the digital twin of a server is that ``mesh profile --url`` made."""
