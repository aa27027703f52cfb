"""What a gateway costs, how it grows, and what it does under overload."""
