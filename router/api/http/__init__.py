"""HTTP below the API: protocol limits, connections, TLS, admission, browsers."""
