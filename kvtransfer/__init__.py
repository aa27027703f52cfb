"""KV movement between engines: layouts, transports and the transfer state machines."""
