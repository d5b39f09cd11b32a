"""Sessions of the package requests that close their connections when they are closed."""

from __future__ import annotations

import requests
from requests.adapters import HTTPAdapter


class _ClosingAdapter(HTTPAdapter):
    """An adapter that closes its connections.

    The base class leaves that to the garbage collector, which does not run while a response is referenced, for
    example by a status error.
    """

    def close(self) -> None:
        pools = self.poolmanager.pools
        for key in list(pools.keys()):
            pool = pools.get(key)
            if pool is not None:
                pool.close()
        super().close()


def new_session() -> requests.Session:
    """Return a session that ignores proxies and passwords of the environment."""
    session = requests.Session()
    session.trust_env = False
    for prefix in ("http://", "https://"):
        session.mount(prefix, _ClosingAdapter())
    return session
