"""Sessions of requests whose connections end when they are closed."""

from __future__ import annotations

import requests
from requests.adapters import HTTPAdapter


class _ClosingAdapter(HTTPAdapter):
    """An adapter that closes its connections.

    By itself it leaves that to the garbage collector, which does not come while anybody holds a response, as status
    errors do.
    """

    def close(self) -> None:
        pools = self.poolmanager.pools
        for key in list(pools.keys()):
            pool = pools.get(key)
            if pool is not None:
                pool.close()
        super().close()


def new_session() -> requests.Session:
    """A session that leaves proxies and passwords of the environment alone."""
    session = requests.Session()
    session.trust_env = False
    for prefix in ("http://", "https://"):
        session.mount(prefix, _ClosingAdapter())
    return session
