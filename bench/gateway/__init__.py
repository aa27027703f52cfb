"""What a gateway costs, and what it does under overload."""
