"""The processes that send the requests: a crew of workers and what they tell each other."""
