"""The Flask app in whose request contexts admitted requests are answered."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import flask
from flask.sessions import NullSession, SessionInterface

from ding.interaction.base import Answer
from ding.interaction.server.app import Admission, Head

if TYPE_CHECKING:
    from werkzeug.routing import MapAdapter


class _NoSessions(SessionInterface):
    """The interface of browser sessions, of which there are none."""

    _none = NullSession()

    def open_session(self, app: flask.Flask, request: flask.Request) -> NullSession:
        return self._none


class FlaskApp(flask.Flask):
    """A Flask app for the user code of masters and slaves: `flask.request` is the request that they answer.

    What answers a request was found by its head; so the app has no routes, and needs no hooks and signals.
    """

    session_interface = _NoSessions()

    def __init__(self) -> None:
        super().__init__(__name__, static_folder=None)

    def create_url_adapter(self, request: flask.Request | None) -> MapAdapter | None:
        return None

    def respond(self, admission: Admission, body: bytes) -> Answer:
        """Return the reply to an admitted request with this body. It never raises."""
        if admission.is_copy:  # what a copy asks for need not exist any more
            return admission.answer(body)
        try:
            with self.request_context(environ_of(admission.head, body)):
                return admission.answer(body)
        except Exception as error:  # the client receives whatever fails
            return admission.refuse(error)


def environ_of(head: Head, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment of a request."""
    headers = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in head.headers.items()}
    return {
        **headers,
        "REQUEST_METHOD": head.method,
        "REQUEST_URI": head.target,
        "SCRIPT_NAME": "",
        "PATH_INFO": head.path,
        "QUERY_STRING": head.target.partition("?")[2],
        "CONTENT_TYPE": head.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "REMOTE_ADDR": head.peer,
        "SERVER_NAME": "",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": head.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
