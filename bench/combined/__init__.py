"""Everything together: several services on many engines, under all policies and with parts left out."""
