"""The HTTP client under a provider SDK: one connection pool, our own time limits, one TLS set-up per process."""

from __future__ import annotations

import functools
import ssl

import httpx2


def http_client(timeout: httpx2.Timeout, *, trust_env: bool) -> httpx2.AsyncClient:
    """A client without a bound on connections: how many calls run at once is the caller's business.

    trust_env: use the proxy settings of the environment.
    """
    return httpx2.AsyncClient(
        timeout=timeout,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
        trust_env=trust_env,
        verify=_tls(),
        follow_redirects=True,
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    # Loading the root certificates takes tens of milliseconds: once, not once per pool.
    return httpx2.create_ssl_context()
