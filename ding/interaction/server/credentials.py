"""The token that all processes of a run share."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat

from ding.interaction.base.network import is_loopback

TOKEN_VARIABLE = "DING_TOKEN"
TOKEN_FILE_VARIABLE = "DING_TOKEN_FILE"

_HOW = (
    f"put a secret into the environment variable {TOKEN_VARIABLE}, or into a file of mode 0600 that "
    f"{TOKEN_FILE_VARIABLE} names, the same one for all processes: "
    'python -c "import secrets; print(secrets.token_hex(32))"'
)


class RunToken:
    """A secret that is compared in constant time and never shown. Masters and slaves sign with it and do not send it.

    Args:
        secret: the token as text.
        guards_pages: whether pages require it as a bearer token; if not, servers listen on this machine only.

    Attributes:
        key: the secret as bytes, for signatures.
    """

    def __init__(self, secret: str, guards_pages: bool = True) -> None:
        self.key = secret.encode()
        self.guards_pages = guards_pages

    def is_in(self, header: str | None) -> bool:
        """Return whether the value of an `Authorization` header carries the token as a bearer token."""
        scheme, _, secret = (header or "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(secret.strip().encode("utf-8", "replace"), self.key)

    def forget(self) -> None:
        """Replace the secret by a random one."""
        self.key = secrets.token_bytes(32)

    def __repr__(self) -> str:
        return "<RunToken>"


def same_secret(one: str, other: str) -> bool:
    """Return whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def draw_run_token() -> RunToken:
    """Return a token for processes that are started on this machine: that of this process, else a new one.

    A new one keeps other users of the machine from sending requests to these processes; pages do not require it.
    """
    return read_run_token() or RunToken(secrets.token_hex(32), guards_pages=False)


def read_run_token() -> RunToken | None:
    """Return the token of this process: from `DING_TOKEN`, else from the file that `DING_TOKEN_FILE` names, else None.

    Raises:
        PermissionError: the file belongs to another user, or others may read or write it.
        OSError: the file cannot be read.
        ValueError: the token is malformed.
    """
    source, secret = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    if not secret:
        source = os.environ.get(TOKEN_FILE_VARIABLE, "")
        if not source:
            return None
        secret = _read_private(source)
    secret = secret.strip()
    if not re.fullmatch(r"[!-~]+", secret):
        raise ValueError(f"{source} holds no token: it must be printable ASCII characters without spaces, at least one")
    return RunToken(secret)


def require_token(host: str, token: RunToken | None) -> None:
    """Refuse to listen off loopback without a token.

    Raises:
        PermissionError: `host` is reachable from other machines, and there is no token for them.
    """
    if (token is None or not token.guards_pages) and not is_loopback(host):
        raise PermissionError(f"host {host!r} is reached from other machines, which needs a token: {_HOW}")


def _read_private(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        status = os.fstat(file.fileno())
        if os.name == "posix":
            if status.st_uid != os.geteuid():
                raise PermissionError(f"the token file {path} belongs to another user: it must be your own")
            if status.st_mode & 0o177:
                mode = stat.S_IMODE(status.st_mode)
                raise PermissionError(f"the token file {path} has mode {mode:04o}: it must be 0600 (chmod 600 {path})")
        return file.read()
