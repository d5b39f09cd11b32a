"""Access control: the token of the run, the names of its machines, and TLS, all from environment variables."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import ssl
import stat
from collections.abc import Iterable
from typing import NoReturn

from ding.interaction.http_client import is_loopback, is_own, literal, resolve, split_http_address

TOKEN_VARIABLE = "DING_TOKEN"
TOKEN_FILE_VARIABLE = "DING_TOKEN_FILE"

_HOW = (
    f"put a secret into the environment variable {TOKEN_VARIABLE}, or into a file of mode 0600 that "
    f"{TOKEN_FILE_VARIABLE} names, the same one for all processes: "
    'python -c "import secrets; print(secrets.token_hex(32))"'
)


class RunToken:
    """A secret that is compared in constant time and never shown; masters and slaves sign with it and never send it.

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
    """Return a token for processes that are started on this machine: the token of this process, else a new one.

    A new token keeps other users of the machine from sending requests to these processes; pages do not require it.
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
    """Check that there is a token if a server is to listen off loopback.

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


HOSTS_VARIABLE = "DING_HOSTS"
_HOST_HEADER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)


def split_host(text: str) -> tuple[str, int | None] | None:
    """Return `(host, port)` of `host[:port]`, in lower case and without brackets; None for any other text."""
    match = _HOST_HEADER.fullmatch(text)
    if match is None or not match[1].strip("."):
        return None
    return match[1].lower().strip("[]").rstrip("."), int(match[2]) if match[2] else None


class HostList:
    """A list of hosts: `name`, `name:port`, or `.domain` for all names in a domain.

    Args:
        entries: the hosts; None for those in the environment variable `DING_HOSTS`, separated by commas.

    Raises:
        ValueError: an entry is malformed.
    """

    def __init__(self, entries: Iterable[str] | None = None) -> None:
        if entries is None:
            entries = os.environ.get(HOSTS_VARIABLE, "").split(",")
        self._entries: list[tuple[str, int | None]] = []
        for entry in filter(None, map(str.strip, entries)):
            parts = split_host(entry)
            if parts is None:
                raise ValueError(f"{entry!r} is no host; entries of {HOSTS_VARIABLE} are name, name:port or .domain")
            self._entries.append(parts)

    def has(self, host: str, port: int) -> bool:
        """Return whether `host` is listed, for this port or for any port."""
        return any(
            (name == host or (name.startswith(".") and host.endswith(name))) and listed_port in (None, port)
            for name, listed_port in self._entries
        )


class OwnNames:
    """The hosts that requests to a server may name.

    A web page can let its own name resolve to this machine, and so make a browser send requests here; but then that
    name is in the `Host` header. Off loopback, where a token is required, IP addresses are accepted, too.

    Args:
        bound: the host and port at which the server listens.
        advertised: the host and port of the address that is sent to peers, if any.
        listed: further hosts.
    """

    def __init__(self, bound: tuple[str, int], advertised: tuple[str, int] | None, listed: HostList) -> None:
        self._bound_host, self._port = bound[0].lower().strip("[]"), bound[1]
        self._advertised = advertised
        self._listed = listed
        self._is_local = is_loopback(self._bound_host)
        self._machine = socket.gethostname().lower() or "localhost"
        self._accepted: str | None = None  # the last header: clients send the same one each time

    def accept(self, header: str | None) -> bool:
        """Return whether a request with this `Host` header is meant for the server."""
        if header is not None and header == self._accepted:
            return True
        is_accepted = self._judge(header)
        if is_accepted:
            self._accepted = header
        return is_accepted

    def _judge(self, header: str | None) -> bool:
        parts = split_host(header or "")
        if parts is None:
            return False
        host, port = parts[0], 80 if parts[1] is None else parts[1]
        if (host, port) == self._advertised or self._listed.has(host, port):
            return True
        return port == self._port and self._is_own(host)

    def _is_own(self, host: str) -> bool:
        address = literal(host)
        if host in (self._bound_host, "localhost") or (address is not None and address.is_loopback):
            return True
        if self._is_local:
            return False
        # A machine is addressed by its name alone or within domains, as pods of a cluster are.
        return address is not None or (
            self._machine != "localhost" and host.split(".")[0] == self._machine.split(".")[0]
        )


_PRINTABLE_URL = re.compile(r"https?://[!-~]{1,2000}", re.IGNORECASE)


def parse_address(address: str) -> tuple[str, int, bool, str]:
    """Return `(host, port, https, path)` of the address of a master.

    Raises:
        ValueError: it is not a plain http or https URL.
    """
    if not _PRINTABLE_URL.fullmatch(address) or any(mark in address for mark in "@?#\\"):
        raise ValueError("it must be http://host[:port][/path] or https://...")
    host, port, https, path = split_http_address(address)
    if not host or not port:
        raise ValueError("it has no host, or the port 0")
    return host, port, https, path


def may_report_to(host: str, port: int, peer: str, listed: HostList) -> bool:
    """Return whether a slave may send requests to `host` if the peer at the address `peer` asks for it.

    A slave reports only to the machine that called it: every address of `host` must be the peer's or, for a peer on
    this machine, an address of this machine. Other hosts, such as a proxy before the master, must be listed.
    """
    if listed.has(host, port):
        return True
    caller = literal(peer.split("%")[0])
    addresses = resolve(host)
    if caller is None or not addresses:
        return False
    is_here = is_own(caller)
    return all(a == caller or (is_here and (is_own(a) or a.is_unspecified)) for a in addresses)


CERT_VARIABLE = "DING_TLS_CERT"
KEY_VARIABLE = "DING_TLS_KEY"
CA_VARIABLE = "DING_TLS_CA"


def is_tls_configured() -> bool:
    """Return whether the servers of this process, and so its peers, use TLS."""
    return bool(os.environ.get(CERT_VARIABLE) or os.environ.get(KEY_VARIABLE))


def server_context() -> ssl.SSLContext | None:
    """Return the TLS context of servers, with the certificate of this machine; None if TLS is not configured.

    Raises:
        ValueError: only one of the two variables is set, or the key is encrypted.
        OSError: a file cannot be read, or is not a certificate and its key.
    """
    if not is_tls_configured():
        return None
    cert, key = os.environ.get(CERT_VARIABLE), os.environ.get(KEY_VARIABLE)
    if not (cert and key):
        missing = KEY_VARIABLE if cert else CERT_VARIABLE
        raise ValueError(f"{missing} is not set; set both {CERT_VARIABLE} and {KEY_VARIABLE} to PEM files, or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _require_readable(CERT_VARIABLE, cert)
    _require_readable(KEY_VARIABLE, key)
    try:
        context.load_cert_chain(cert, key, _refuse_password)
    except ssl.SSLError as e:
        reason = f"{CERT_VARIABLE} = {cert!r} and {KEY_VARIABLE} = {key!r} are not a certificate and its key in PEM"
        raise ssl.SSLError(e.errno, f"{reason}: {e.strerror}") from e
    return context


def check_authorities() -> None:
    """Load the file that `DING_TLS_CA` names, if any.

    Raises:
        OSError: see `client_context`.
    """
    if os.environ.get(CA_VARIABLE):
        client_context()


def client_context() -> ssl.SSLContext:
    """Return the TLS context of clients, which trusts the authorities in the file that `DING_TLS_CA` names.

    Without the variable it trusts the authorities of the system, or of the file that `SSL_CERT_FILE` names.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    authorities = os.environ.get(CA_VARIABLE)
    if not authorities:
        return ssl.create_default_context()
    _require_readable(CA_VARIABLE, authorities)
    try:
        return ssl.create_default_context(cafile=authorities)
    except ssl.SSLError as e:
        reason = f"{CA_VARIABLE} = {authorities!r} holds no certificate in PEM"
        raise ssl.SSLError(e.errno, f"{reason}: {e.strerror}") from e


def _require_readable(variable: str, path: str) -> None:
    # The module ssl does not say which file it cannot read.
    try:
        open(path, "rb").close()
    except OSError as e:
        raise type(e)(e.errno, f"{variable} = {path!r} cannot be read: {e.strerror}") from e


def _refuse_password() -> NoReturn:
    # Without a callback OpenSSL asks for the password on the terminal, and the server never starts.
    raise ValueError(f"the key that {KEY_VARIABLE} names is encrypted; give one without a password")
