"""Which addresses the web tools may connect to: public ones only, decided on what a name resolves to.

A name is resolved once, every address it has is checked, and the connection goes to a checked address: a second answer
of the resolver (rebinding) is never asked for. One forbidden address among public ones refuses the whole name.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from engines.structured.text import quote
from engines.tools.base import ToolFailed

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]

PORTS: Final = frozenset({80, 443, 8080, 8443})
MAX_URL_CHARS: Final = 2_000
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f\\]|[^\S ]")
# Public by their numbers, yet inside: Azure's platform address, relays that lead to any IPv4 address, deprecated ones.
_FORBIDDEN: Final = tuple(
    ipaddress.ip_network(net)
    for net in ("168.63.129.16/32", "192.88.99.0/24", "192.0.0.0/24", "64:ff9b:1::/48", "::/96", "fec0::/10")
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class Forbidden(ToolFailed):
    """The guard refuses this target. Nothing was sent to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A checked place to connect to: ``address`` is the only one that may be used."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    """With the query, as it goes on the wire."""
    address: str


def system_resolver(host: str, port: int) -> Sequence[str]:
    """Every address of ``host`` by the operating system. Raises ``OSError``."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Guard:
    """Decides about URLs. ``resolver`` is asked once for each.

    networks: addresses that may be reached although they are not public, at any port. tls_only: elsewhere by https.
    """

    def __init__(
        self,
        resolver: Resolver = system_resolver,
        ports: frozenset[int] = PORTS,
        *,
        networks: Sequence[Network] = (),
        tls_only: bool = False,
    ) -> None:
        self._resolver = resolver
        self._ports = ports
        self._networks = tuple(networks)
        self._tls_only = tls_only

    def look_at(self, url: str) -> None:
        """What can be said of ``url`` without resolving its name. Raises :class:`Forbidden`."""
        scheme, host, port, path = self._split(url)
        if not path.isascii():
            raise Forbidden(f"{quote(url)}: in the path only ASCII; write other characters percent-encoded")
        try:
            address = str(ipaddress.ip_address(host))
        except ValueError:
            if not self._networks:
                self._admit(scheme, port)
        else:
            self._judge(scheme, host, port, address)

    def check(self, url: str, *, coming_from: Target | None = None) -> Target:
        """The target of ``url``. Raises :class:`Forbidden`; ``coming_from`` is the hop that redirected here."""
        scheme, host, port, path = self._split(url)
        if not self._networks:
            self._admit(scheme, port)
        if coming_from is not None and coming_from.scheme == "https" and scheme == "http":
            raise Forbidden(f"{coming_from.host} redirects from https to http, which is not followed")
        try:
            addresses = self._resolver(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolFailed(f"the host {quote(host)} cannot be resolved: {error}") from None
        if not addresses:
            raise ToolFailed(f"the host {quote(host)} has no address")
        for address in addresses:
            self._judge(scheme, host, port, address)
        return Target(url=url, scheme=scheme, host=host, port=port, path=path, address=addresses[0])

    def _judge(self, scheme: str, host: str, port: int, address: str) -> None:
        if _within(address, self._networks):
            return
        self._admit(scheme, port)
        why = objection(address)
        if why is not None:
            raise Forbidden(f"the host {quote(host)} is not fetched: its address {address} is {why}")

    def _admit(self, scheme: str, port: int) -> None:
        """Whether a public address may be reached this way."""
        if self._tls_only and scheme != "https":
            raise Forbidden("only https is allowed there")
        if port not in self._ports:
            allowed = ", ".join(map(str, sorted(self._ports)))
            raise Forbidden(f"port {port} is not fetched; allowed are {allowed}")

    def _split(self, url: str) -> tuple[str, str, int, str]:
        if len(url) > MAX_URL_CHARS:
            raise Forbidden(f"the URL is longer than {MAX_URL_CHARS:,} characters")
        if _UNSAFE.search(url):
            raise Forbidden(f"{quote(url)} holds blanks, control characters or backslashes")
        try:
            parts = urlsplit(url)
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode("ascii") if parts.hostname else ""
        except (ValueError, UnicodeError) as error:
            raise Forbidden(f"{quote(url)} is no URL: {error}") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise Forbidden(f"{quote(url)}: only http and https are fetched")
        if not host or "%" in host:
            raise Forbidden(f"{quote(url)} names no host")
        if parts.username is not None or parts.password is not None:
            raise Forbidden(f"a URL with a user name or password is not fetched: {quote(host)}")
        port = port if port is not None else _DEFAULT_PORTS[parts.scheme]
        path = parts.path or "/"
        return parts.scheme, host, port, f"{path}?{parts.query}" if parts.query else path


def objection(address: str) -> str | None:
    """Why nothing may connect to ``address``; ``None`` for a public one. Looks into IPv6 forms of IPv4 too."""
    try:
        parsed: Address = ipaddress.ip_address(address)
    except ValueError:
        return "no IP address"
    inner = _inside(parsed)
    if inner is not None:
        return objection(str(inner))
    if parsed.is_loopback:
        return "a loopback address"
    if parsed.is_link_local:
        return "a link-local address"
    if any(parsed in net for net in _FORBIDDEN if net.version == parsed.version):
        return "a reserved address"
    if parsed.is_multicast or parsed.is_unspecified or parsed.is_reserved:
        return "a reserved address"
    return None if parsed.is_global else "a private address"


def _within(address: str, networks: Sequence[Network]) -> bool:
    try:
        parsed: Address = ipaddress.ip_address(address)
    except ValueError:
        return False
    forms = (parsed, _inside(parsed))
    return any(form in network for form in forms if form is not None for network in networks)


def _inside(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour
