"""Requests that come from other engines and go to them: hand-over, migration, rescheduling."""
