"""What the processes of a mesh offer Prometheus: numbers, their text, and a listener for those without HTTP."""
