"""The addresses by which clients outside the network of a cluster reach its processes. Pure.

Servers and storages register addresses that are valid inside their network, such as the IP address
of a pod. The znode ``outside`` below the cluster's root maps, as JSON, a registered address to the
*outside address* of the same port. Without the znode, as in Waltz 0.13.2, a cluster can be reached
only from inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.storage_maps import ChangeRefused, StorageMaps
from waltz.net.core.addresses import address_problem

Access = Literal["inside", "outside"]
"""Which addresses a process dials: the registered ones, or their outside addresses."""

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class OutsideAddresses:
    """The outside address of each registered address; both are ``host:port``.

    The registered addresses are those of servers, and of both ports of storages. Two registered
    addresses may have the same outside address, because the entry of a process that has ended may
    remain for a while. Raises ChangeRefused if an address is malformed.
    """

    addresses: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for registered, outside in self.addresses.items():
            _check(registered, "a registered address")
            _check(outside, f"the outside address of {registered}")

    def outside_of(self, registered: str) -> str | None:
        """Return the outside address of ``registered``, None if it has none."""
        return self.addresses.get(registered)

    def sharing(self, registered: str) -> tuple[str, ...]:
        """Return the other registered addresses that have the outside address of ``registered``.

        If ``registered`` has no outside address, the result is empty. A storage that shares its
        outside address with another one must not be dialed there: a storage does not say which one
        it is, so one storage could answer for both (`waltz.client.outside`).
        """
        # Upper and lower case make no difference in the name of a host.
        shared = self.addresses.get(registered, "").lower()
        return tuple(
            inside
            for inside, outside in self.addresses.items()
            if inside != registered and outside.lower() == shared
        )

    def with_addresses(self, addresses: Mapping[str, str]) -> OutsideAddresses:
        """Return these addresses, changed and extended by ``addresses``. Raises ChangeRefused."""
        return OutsideAddresses({**self.addresses, **addresses})

    def without(self, registered: Iterable[str]) -> OutsideAddresses:
        """Return the addresses of all but ``registered``; unknown ones are ignored."""
        removed = set(registered)
        kept = {
            inside: outside for inside, outside in self.addresses.items() if inside not in removed
        }
        return OutsideAddresses(kept)

    def encode(self) -> bytes:
        """Return the data of the znode."""
        fields = {"format": _FORMAT, "addresses": dict(sorted(self.addresses.items()))}
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> OutsideAddresses:
        """Read what `encode` returned. Raises MalformedMetadata."""
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']} is not {_FORMAT}")
            return cls({inside: _text(outside) for inside, outside in fields["addresses"].items()})
        except KeyError as problem:
            raise MalformedMetadata("OutsideAddresses", f"it has no {problem}") from problem
        # A malformed address raises ChangeRefused, which is a ValueError.
        except (ValueError, TypeError, AttributeError, RecursionError) as problem:
            raise MalformedMetadata("OutsideAddresses", str(problem)) from problem


def storage_addresses(maps: StorageMaps) -> frozenset[str]:
    """Return the registered addresses of both ports of all storages."""
    admin = maps.admin_addresses()
    return frozenset({*maps.groups.groups, *admin.keys(), *admin.values()})


def _text(value: Any) -> str:
    """Return ``value`` if it is a text; otherwise raise ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


def _check(address: str, name: str) -> None:
    """Raise ChangeRefused if ``address``, which an error calls ``name``, is malformed."""
    if (problem := address_problem(address)) is not None:
        raise ChangeRefused(f"{address!r} cannot be {name}: {problem}")
