"""Every message of the mesh, as typed structs in MessagePack.

Theory of operation. Each process binds two sockets. Its *inbox* takes one-way messages from any peer; a reply is a
message to the sender's inbox. Its *broadcast* publishes what it says to everybody: its status. There are no
request-reply sockets, so no conversation can wedge: a reply that does not come is a deadline that passes.

A message is a list of frames::

    inbox      [version, sender, body, *payload]
    broadcast  [topic, version, sender, body]         an empty body: the sender lives, and says no more

``version`` is `WIRE_VERSION`. ``sender`` is ``process@incarnation`` in UTF-8. ``body`` is a MessagePack map whose key
``type`` names the struct, so that any MessagePack library can read it. ``payload`` frames are raw bytes (KV blocks),
never encoded.

Durations are seconds (``_s``), relative to the moment of sending: clocks of different hosts are never compared.
"""
