"""An operator that is none: it lists the replicas that a test puts there."""

import json
import queue
import threading
from typing import Any

import flask
import pytest
from werkzeug.serving import WSGIRequestHandler, make_server

PATIENCE_S = 60.0


class _Quiet(WSGIRequestHandler):
    def log(self, *args: Any) -> None:
        """Say nothing."""


class FakeOperator:
    """Answers under `/v1alpha1`, at a port of its own.

    Attributes:
        listed: what it lists.
        requests: (method, path, parameters, body) of each request, but those for the list.
        lists: how often the list was asked for; `seen` waits for more.
        answers: by method and path, what is answered instead: (reply, status), or a function that returns that.
    """

    def __init__(self) -> None:
        self.listed: dict[str, Any] = {"collectors": [], "learners": []}
        self.requests: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.parameters: dict[str, str] = {}
        self.answers: dict[tuple[str, str], Any] = {}
        self.lists = 0
        self._changed = threading.Condition()
        app = flask.Flask("operator")
        for path in ("replicas", "replicas/failed"):
            app.add_url_rule(
                f"/v1alpha1/{path}", path, lambda path=path: self._answer(path), methods=["GET", "POST", "DELETE"]
            )
        self._server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _answer(self, path: str) -> Any:
        request = flask.request
        body = json.loads(request.data.decode())
        method = request.method
        if method == "GET":
            with self._changed:
                self.lists += 1
                self.parameters = dict(request.args)
                self._changed.notify_all()
        else:
            self.requests.put((method, path, dict(request.args), body))
        answer = self.answers.get((method, path))
        if answer is not None:
            return answer() if callable(answer) else answer
        return envelope(self.listed if method == "GET" else {}), 200

    def see(self, count: int = 2) -> None:
        """Wait until the list was asked for so many more times: those that listed see what the test has done before."""
        self.see_in_all(self.lists + count)

    def see_in_all(self, count: int) -> None:
        """Wait until the list was asked for `count` times."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.lists >= count, PATIENCE_S)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE_S)
        self._server.server_close()


def envelope(data: Any = None, success: bool = True, code: int = 0, message: str = "ok") -> Any:
    return {"success": success, "code": code, "message": message, "data": data}


@pytest.fixture
def operator():
    """An operator that the test tells what to answer."""
    operator = FakeOperator()
    yield operator
    operator.close()
