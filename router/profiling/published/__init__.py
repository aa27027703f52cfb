"""``mesh profile --from``: what others measured of a server, read and fitted to."""
