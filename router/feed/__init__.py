"""The feed: what happens in the mesh, as a stream that pages and terminals read (`docs/reference/feed.md`)."""
