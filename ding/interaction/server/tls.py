"""TLS between masters and slaves, configured by environment variables that all processes of a run share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import ssl

CERT_VARIABLE = "DING_TLS_CERT"
KEY_VARIABLE = "DING_TLS_KEY"
CA_VARIABLE = "DING_TLS_CA"


def is_tls_configured() -> bool:
    """Return whether the servers of this process use TLS, and so its peers, too."""
    return bool(os.environ.get(CERT_VARIABLE) or os.environ.get(KEY_VARIABLE))


def server_context() -> ssl.SSLContext | None:
    """Return the TLS context of servers, with the certificate of this machine; None if TLS is not configured.

    Raises:
        ValueError: only one of the two variables is set, or the key is encrypted.
        OSError: a file cannot be read, or is not a certificate and its key.
    """
    if not is_tls_configured():
        return None
    import ssl

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


def client_context() -> ssl.SSLContext:
    """Return the TLS context of clients, which trusts the authorities in the file that `DING_TLS_CA` names.

    Without the variable it trusts those of the system, or of the file that `SSL_CERT_FILE` names.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    import ssl

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
