"""A double of `kvtransfer.nixl.agent`: all agents are in this process, and a read copies memory. No NIXL."""

import ctypes
import itertools

from kvtransfer.nixl.agent import NixlError


class Network:
    """What connects agents. Reads that begin while it ``is_slow`` end with `arrive`."""

    def __init__(self):
        self.agents = {}
        self.is_slow = False
        self.under_way = {}  # reads by handle: what is copied when they arrive
        self.failed = set()
        self.handles = itertools.count(1)

    def arrive(self):
        for copy in self.under_way.values():
            copy()
        self.under_way.clear()

    def fail(self):
        self.failed |= self.under_way.keys()
        self.under_way.clear()


class FakeAgent:
    def __init__(self, network, name):
        self.network, self.name = network, name
        self.regions, self.peers, self.ended = [], set(), []
        network.agents[name] = self

    def register(self, segment, address, num_bytes):
        self.regions.append((segment, address, num_bytes))

    def metadata(self):
        return f"agent {self.name}".encode()

    def connect(self, metadata):
        word, _, name = metadata.decode(errors="replace").partition(" ")
        if word != "agent" or name not in self.network.agents:
            raise NixlError("NIXL: no such agent")
        self.peers.add(name)
        return name

    def disconnect(self, name):
        self.peers.remove(name)

    def has(self, pieces):
        def holds(address):
            return any(
                segment == pieces.segment and start <= address and address + pieces.num_bytes <= start + size
                for segment, start, size in self.regions
            )

        return all(holds(address) for address in pieces.addresses.tolist())

    def begin(self, name, there, here):
        if name not in self.peers:
            raise NixlError("NIXL: disconnected")
        if not self.has(here) or not self.network.agents[name].has(there):
            raise NixlError("NIXL: not registered")
        assert len(here.addresses) == len(there.addresses)
        assert here.num_bytes == there.num_bytes

        def copy():
            for target, source in zip(here.addresses.tolist(), there.addresses.tolist(), strict=True):
                ctypes.memmove(target, source, here.num_bytes)

        handle = next(self.network.handles)
        if self.network.is_slow:
            self.network.under_way[handle] = copy
        else:
            copy()
        return handle

    def is_done(self, read):
        if read in self.network.failed:
            raise NixlError("NIXL: the connection broke")
        return read not in self.network.under_way

    def end(self, read):
        assert read not in self.network.under_way, "a read that goes on is not forgotten"
        self.ended.append(read)
