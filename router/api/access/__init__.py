"""Access keys at the gateway: who may ask, how often, and for which promises."""
