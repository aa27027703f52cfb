"""Changes the present placement to a new plan, without dropping a request."""
