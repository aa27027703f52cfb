"""LoRA adapters on the wire: how requests name theirs, and how a mesh agrees on those that are added while it runs."""

import msgspec

from mesh.wire.bounds import Count, Name


class LoraAdapter(msgspec.Struct, frozen=True):
    """A LoRA adapter and where engines find it. ``service``: what clients ask for. ``digest``: of its files, for others
    may have had that name before.
    """

    service: Name
    folder: Name
    digest: Name
    num_weights: Count  # of all its factors

    @property
    def key(self) -> str:
        """Return a name that no other adapter has, whatever was called so before."""
        return f"{self.service}@{self.digest}"


class AddedAdapter(msgspec.Struct, frozen=True):
    """An adapter that was added while the mesh runs, or removed again. ``base``: the service with whose model it is
    computed.

    The highest version wins; all gateways repeat it.
    """

    adapter: LoraAdapter
    base: Name
    version: Count
    is_removed: bool = False

    @property
    def rank(self) -> tuple[int, bool, str]:
        """Return what tells which of two counts: never are two of them alike."""
        return self.version, self.is_removed, self.adapter.digest


class AddAdapter(msgspec.Struct, frozen=True, tag=True):
    """Tells a gateway to serve an adapter, and to let the other gateways know. It answers `AdapterAnswer`."""

    service: Name
    path: Name  # as the gateway sees it: below the folder of [adapters], or seen from there
    base: Name | None = None  # None: only one service fits
    in_place: bool = False  # of one that has this name


class RemoveAdapter(msgspec.Struct, frozen=True, tag=True):
    """Tells a gateway to serve an added adapter no more, and to let the others know. It answers `AdapterAnswer`."""

    service: Name


class AdapterAnswer(msgspec.Struct, frozen=True, tag=True):
    """Answers `AddAdapter` and `RemoveAdapter`. ``problem``: why it cannot be; empty: it is so now.

    It is published under the topic of the process that asks, as `RequestPlaces` is.
    """

    service: Name
    problem: str = ""


class ExpectAdapter(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine that requests with this adapter will come: it loads it if there is room."""

    service: Name  # its base
    adapter: LoraAdapter


class ForgetAdapter(msgspec.Struct, frozen=True, tag=True):
    """Tells an engine that no new requests with the adapter of this service will come."""

    service: Name
