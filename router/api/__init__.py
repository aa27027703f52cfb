"""The OpenAI API of a gateway: HTTP in, `router.generation` behind it."""
