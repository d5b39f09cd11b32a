"""Access control: the token of the run, the names of its machines, and TLS, all from environment variables."""

from __future__ import annotations

import datetime
import functools
import hashlib
import hmac
import os
import re
import secrets
import socket
import ssl
import stat
import tempfile
from typing import NoReturn

from ding.interaction.http_client import is_loopback, literal

TOKEN_VARIABLE = "DING_TOKEN"
TOKEN_FILE_VARIABLE = "DING_TOKEN_FILE"

_HOW = (
    f"put a secret into the environment variable {TOKEN_VARIABLE}, or into a file of mode 0600 that "
    f"{TOKEN_FILE_VARIABLE} names, the same one for all processes: "
    'python -c "import secrets; print(secrets.token_hex(32))"'
)


class RunToken:
    """A secret that is compared in constant time and never shown, which clients send as a bearer token.

    Args:
        secret: the token as text.
        guards_pages: whether pages require it, too; if not, servers listen on this machine only.
    """

    def __init__(self, secret: str, guards_pages: bool = True) -> None:
        self.secret = secret
        self.guards_pages = guards_pages

    def is_in(self, header: str | None) -> bool:
        """Return whether the value of an `Authorization` header carries the token as a bearer token."""
        scheme, _, secret = (header or "").partition(" ")
        return scheme.lower() == "bearer" and same_secret(secret.strip(), self.secret)

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
_HOST_HEADER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)


def host_of(text: str) -> str | None:
    """Return the host of `host[:port]`, in lower case and without brackets; None for any other text."""
    match = _HOST_HEADER.fullmatch(text)
    return match[1].lower().strip("[]").rstrip(".") or None if match else None


def listed_hosts() -> tuple[str, ...]:
    """Return the hosts in the environment variable `DING_HOSTS`, separated by commas: `name` or `.domain`.

    Raises:
        ValueError: an entry is malformed.
    """
    entries = [entry.strip() for entry in os.environ.get(HOSTS_VARIABLE, "").split(",") if entry.strip()]
    hosts = [host_of(entry) for entry in entries]
    for entry, host in zip(entries, hosts, strict=True):
        if host is None:
            raise ValueError(f"{entry!r} is no host; entries of {HOSTS_VARIABLE} are name or .domain")
    return tuple(filter(None, hosts))


def is_own_name(header: str | None, bound: str, listed: tuple[str, ...]) -> bool:
    """Return whether a request with this `Host` header is meant for a server that listens at the host `bound`.

    A web page can let its own name resolve to this machine, and so make a browser send requests here; but then that
    name is in the header, not an IP address or a name of this machine.
    """
    host = host_of(header or "")
    if host is None:
        return False
    machine = socket.gethostname().lower().split(".")[0]
    return (
        host in (bound.lower(), "localhost")
        or literal(host) is not None
        or any(host == name or (name.startswith(".") and host.endswith(name)) for name in listed)
        # A machine is addressed by its name alone or within domains, as pods of a cluster are.
        or (host.split(".")[0] == machine and not is_loopback(bound))
    )


CERT_VARIABLE = "DING_TLS_CERT"
KEY_VARIABLE = "DING_TLS_KEY"
CA_VARIABLE = "DING_TLS_CA"


def uses_tls(host: str) -> bool:
    """Return whether servers at `host` use TLS: all off loopback, and all if `DING_TLS_CERT` is set."""
    return bool(os.environ.get(CERT_VARIABLE) or os.environ.get(KEY_VARIABLE)) or not is_loopback(host)


def server_context(host: str, token: RunToken | None) -> ssl.SSLContext | None:
    """Return the TLS context of a server at `host`, with the certificate of the user, else with that of the run.

    Raises:
        ValueError: only one of the two variables is set, or the key is encrypted.
        OSError: a file cannot be read, or is not a certificate and its key.
    """
    if not uses_tls(host):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert, key = os.environ.get(CERT_VARIABLE), os.environ.get(KEY_VARIABLE)
    if cert or key:
        if not (cert and key):
            missing = KEY_VARIABLE if cert else CERT_VARIABLE
            raise ValueError(f"{missing} is not set; set both {CERT_VARIABLE} and {KEY_VARIABLE} to PEM files, or none")
        _require_readable(CERT_VARIABLE, cert)
        _require_readable(KEY_VARIABLE, key)
        try:
            context.load_cert_chain(cert, key, _refuse_password)
        except ssl.SSLError as e:
            reason = f"{CERT_VARIABLE} = {cert!r} and {KEY_VARIABLE} = {key!r} are not a certificate and its key in PEM"
            raise ssl.SSLError(e.errno, f"{reason}: {e.strerror}") from e
    else:
        assert token is not None  # see `require_token`
        with tempfile.NamedTemporaryFile(prefix="ding_") as file:  # of mode 0600; the module ssl reads only files
            file.write("".join(certificate_of(token.secret)).encode())
            file.flush()
            context.load_cert_chain(file.name)
    return context


def client_context(token: RunToken | None) -> ssl.SSLContext:
    """Return the TLS context of clients.

    It trusts the authorities in the file that `DING_TLS_CA` names, or else, if the server has no certificate of the
    user, nothing but the certificate of the run, whatever the name of the server. Without a token it trusts the
    authorities of the system.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    authorities = os.environ.get(CA_VARIABLE)
    if authorities:
        _require_readable(CA_VARIABLE, authorities)
        try:
            return ssl.create_default_context(cafile=authorities)
        except ssl.SSLError as e:
            reason = f"{CA_VARIABLE} = {authorities!r} holds no certificate in PEM"
            raise ssl.SSLError(e.errno, f"{reason}: {e.strerror}") from e
    if token is None or os.environ.get(CERT_VARIABLE):
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate_of(token.secret)[0])
    return context


@functools.lru_cache(maxsize=4)
def certificate_of(secret: str) -> tuple[str, str]:
    """Return the certificate of a run with this token, and its key, in PEM.

    The key is derived from the token, and the signature of Ed25519 is deterministic; so all processes of the run make
    the same certificate, and need no file of it. A client that trusts it alone reaches only servers that know the
    token. As others can try tokens on the certificate, the derivation is slow, and the token must be a random one.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    seed = hashlib.scrypt(secret.encode(), salt=b"certificate of a run of ding", n=2**14, r=8, p=1, dklen=32)
    key = Ed25519PrivateKey.from_private_bytes(seed)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ding")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), serial_number=1)
    builder = builder.not_valid_before(datetime.datetime(2020, 1, 1)).not_valid_after(datetime.datetime(2120, 1, 1))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return builder.sign(key, None).public_bytes(Encoding.PEM).decode(), private.decode()


def _require_readable(variable: str, path: str) -> None:
    # The module ssl does not say which file it cannot read.
    try:
        open(path, "rb").close()
    except OSError as e:
        raise type(e)(e.errno, f"{variable} = {path!r} cannot be read: {e.strerror}") from e


def _refuse_password() -> NoReturn:
    # Without a callback OpenSSL asks for the password on the terminal, and the server never starts.
    raise ValueError(f"the key that {KEY_VARIABLE} names is encrypted; give one without a password")
