"""``mesh top``: what happens in a mesh, in the terminal, from the feeds of all gateways.

What is known (`known`), what a key does (`screen`) and what is drawn (`drawing`) is pure; `app` is the process around.
"""
