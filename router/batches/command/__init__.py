"""``mesh batch``: runs a file of requests as a batch of a mesh, and brings the answers."""
