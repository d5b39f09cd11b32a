import json
import random
import socket
import string
import threading
from functools import partial

import flask
import pytest
import requests

from ding.interaction import exception
from ding.interaction.base import (
    CommonErrorCode,
    ControllableContext,
    ControllableService,
    DblEvent,
    ResponsibleException,
    default_func,
    failure_response,
    flask_response,
    get_host_ip,
    get_values_from_response,
    random_token,
    responsible,
    split_http_address,
    success_response,
    translate_dict_func,
)
from ding.interaction.exception import (
    MasterErrorCode,
    MasterResponseException,
    ResponseException,
    SlaveErrorCode,
    SlaveResponseException,
    failure_for,
    failure_of,
    get_master_exception_by_error,
    get_master_exception_class_by_error_code,
    get_slave_exception_by_error,
    get_slave_exception_class_by_error_code,
    refusal_of,
)
from ding.interaction.http_client import is_loopback, is_wildcard, url_host


@pytest.mark.parametrize(("length", "expected"), [(None, 64), (0, 64), (1, 1), (100, 100)])
def test_tokens_are_hexadecimal_digits_of_the_wanted_length(length, expected):
    token = random_token(length)
    assert len(token) == expected and set(token) <= set(string.hexdigits)


@pytest.mark.differs(
    "draws tokens from the seeded generator, equal in sibling processes",
    "draws them from the operating system",
)
def test_tokens_do_not_come_from_the_seeded_generator():
    tokens = set()
    for _ in range(20):
        random.seed(0)
        tokens.add(random_token())
    assert len(tokens) == 20
    assert {c for token in tokens for c in token} == set(string.hexdigits)


def test_a_dict_of_functions_becomes_a_function_of_dicts():
    assert translate_dict_func({"a": lambda: 1, "b": lambda: 2})() == {"a": 1, "b": 2}
    assert translate_dict_func({"sum": lambda x, y: x + y, "mul": lambda x, y: x * y})(2, 3) == {"sum": 5, "mul": 6}


def test_a_default_function_stands_in_for_a_missing_one_only():
    assert default_func(5)(None)(1, 2, x=3) == 5
    assert default_func()(None)() is None
    assert default_func(5)(max) is max


def test_a_context_is_started_on_entering_and_closed_on_leaving():
    calls = []

    class Context(ControllableContext):
        def start(self):
            calls.append("start")

        def close(self):
            calls.append("close")

    context = Context()
    with context as entered:
        assert entered is context and calls == ["start"]
    assert calls == ["start", "close"]
    with pytest.raises(KeyError), context:
        raise KeyError
    assert calls == ["start", "close"] * 2


def test_closing_a_service_is_shutdown_and_join_in_this_order():
    calls = []

    class Service(ControllableService):
        def start(self):
            calls.append("start")

        def shutdown(self):
            calls.append("shutdown")

        def join(self):
            calls.append("join")

    with Service():
        assert calls == ["start"]
    assert calls == ["start", "shutdown", "join"]


@pytest.mark.parametrize("kind", [ControllableContext, ControllableService])
def test_contexts_and_services_are_abstract(kind):
    with pytest.raises(TypeError):
        kind()


def shape(response):
    assert response.mimetype == "application/json" and response.status_code == 200
    return response.get_json()


def test_success_and_failure_have_one_shape():
    assert shape(success_response()) == {"success": True, "code": 0, "message": "Success.", "data": None}
    assert shape(success_response({"a": 1}, "fine")) == {
        "success": True,
        "code": 0,
        "message": "fine",
        "data": {"a": 1},
    }
    assert shape(failure_response()) == {"success": False, "code": 1, "message": "Failed.", "data": None}
    assert shape(failure_response(5, "bad", [1])) == {"success": False, "code": 5, "message": "bad", "data": [1]}


@pytest.mark.parametrize(("success", "code", "told"), [(True, 7, 0), (True, None, 0), (False, 0, 1), (False, 7, 7)])
def test_the_code_is_0_exactly_on_success(success, code, told):
    assert shape(flask_response(success, code=code))["code"] == told
    assert (CommonErrorCode.SUCCESS, CommonErrorCode.COMMON_FAILURE) == (0, 1)


def client(view):
    app = flask.Flask("test")
    app.add_url_rule("/", view_func=view)
    return app.test_client()


def test_values_of_flask_responses():
    response = client(lambda: (failure_response(5, "bad", {"a": 1}), 404)).get("/")
    assert get_values_from_response(response) == (404, False, 5, "bad", {"a": 1})
    assert get_values_from_response(client(lambda: success_response()).get("/")) == (200, True, 0, "Success.", None)


def reply(text, status=200):
    response = requests.Response()
    response.status_code, response._content = status, text.encode()
    return response


def test_values_of_responses_of_requests():
    assert get_values_from_response(reply('{"success": true, "code": 0}')) == (200, True, 0, "", {})
    full = {"success": False, "code": 9, "message": "m", "data": 0}
    assert get_values_from_response(reply(json.dumps(full), 400)) == (400, False, 9, "m", 0)


@pytest.mark.parametrize(("text", "error"), [("<html>", ValueError), ("[]", KeyError), ("{}", KeyError)])
def test_a_reply_without_envelope_is_an_error(text, error):
    with pytest.raises(error):
        get_values_from_response(reply(text))


class Special(ResponsibleException):
    pass


def raising(error, **kwargs):
    @responsible(**kwargs)
    def view():
        if error is None:
            return success_response()
        raise error

    return view


def test_a_responsible_exception_becomes_its_reply():
    response = client(raising(Special(3, "text", {"a": 1}, 418))).get("/")
    assert get_values_from_response(response) == (418, False, 3, "text", {"a": 1})
    response = client(raising(ResponsibleException())).get("/")
    assert (response.status_code, response.get_json()) == (
        400,
        {"success": False, "code": 1, "message": "Failed.", "data": {}},
    )


def test_success_is_left_alone():
    view = raising(None)
    assert view.__name__ == "view"
    assert client(view).get("/").get_json()["success"] is True


def test_only_the_given_classes_become_replies():
    assert client(raising(Special(), classes=[Special])).get("/").status_code == 400
    with pytest.raises(ResponsibleException):
        raising(ResponsibleException(), classes=iter([Special]))()
    with pytest.raises(KeyError):
        raising(KeyError())()


DEADLINE_S = 20


@pytest.mark.parametrize("opened", [False, True])
def test_an_event_begins_as_it_is_told_to(opened):
    event = DblEvent(opened)
    assert event.is_open() is opened and event.is_close() is not opened


def test_an_event_begins_closed_by_default():
    assert DblEvent().is_close()


@pytest.mark.parametrize("opens", [True, False])
def test_waiters_for_either_direction_are_released(opens):
    event, released = DblEvent(opened=not opens), []
    wait = event.wait_for_open if opens else event.wait_for_close

    def waiting():
        wait()
        released.append(event.is_open())

    threads = [threading.Thread(target=waiting) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert released == []
    (event.open if opens else event.close)()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert released == [opens] * 3


def test_waiting_for_what_is_returns_at_once_and_for_what_is_not_after_the_timeout():
    event = DblEvent(opened=True)
    assert event.wait_for_open() is None and event.wait_for_close(timeout=0.01) is None
    assert event.is_open()
    event.close()
    assert event.wait_for_close() is None and event.wait_for_open(timeout=0.01) is None
    assert event.is_close()


SIDES = pytest.mark.parametrize(
    ("codes", "base", "class_of", "by_error", "any_error"),
    [
        (
            MasterErrorCode, MasterResponseException, get_master_exception_class_by_error_code,
            get_master_exception_by_error, partial(refusal_of, "master"),
        ),
        (
            SlaveErrorCode, SlaveResponseException, get_slave_exception_class_by_error_code,
            get_slave_exception_by_error, partial(refusal_of, "slave"),
        ),
    ],
    ids=["master", "slave"],
)  # fmt: skip


def http_error(text, status=400):
    response = requests.Response()
    response.status_code, response.reason, response._content = status, "Reason", text.encode()
    return requests.HTTPError("text", response=response)


def envelope(code, status=400):
    return http_error(json.dumps({"success": False, "code": code, "message": "it says", "data": {"a": 1}}), status)


def test_the_codes_are_as_documented():
    assert {code.name: int(code) for code in MasterErrorCode} == {
        "SUCCESS": 0, "SYSTEM_SHUTTING_DOWN": 101, "CHANNEL_NOT_GIVEN": 201, "CHANNEL_INVALID": 202,
        "MASTER_TOKEN_NOT_GIVEN": 301, "MASTER_TOKEN_INVALID": 302, "SELF_TOKEN_NOT_GIVEN": 401,
        "SELF_TOKEN_INVALID": 402, "SLAVE_TOKEN_NOT_GIVEN": 501, "SLAVE_TOKEN_INVALID": 502, "TASK_DATA_INVALID": 601,
    }  # fmt: skip
    assert {code.name: int(code) for code in SlaveErrorCode} == {
        "SUCCESS": 0, "SYSTEM_SHUTTING_DOWN": 101, "CHANNEL_NOT_FOUND": 201, "CHANNEL_INVALID": 202,
        "MASTER_TOKEN_NOT_FOUND": 301, "MASTER_TOKEN_INVALID": 302, "SELF_TOKEN_NOT_FOUND": 401,
        "SELF_TOKEN_INVALID": 402, "SLAVE_ALREADY_CONNECTED": 501, "SLAVE_NOT_CONNECTED": 502,
        "SLAVE_CONNECTION_REFUSED": 503, "SLAVE_DISCONNECTION_REFUSED": 504, "TASK_ALREADY_EXIST": 601,
        "TASK_REFUSED": 602,
    }  # fmt: skip


@SIDES
def test_every_code_has_its_exception(codes, base, class_of, by_error, any_error):
    side = codes.__name__.removesuffix("ErrorCode")
    for code in codes:
        name = side + "".join(word.capitalize() for word in code.name.split("_"))
        error = by_error(envelope(int(code)))
        assert type(error) is class_of(int(code)) is class_of(code) is getattr(exception, name)
        assert isinstance(error, base) and isinstance(error, ResponseException)
        assert not isinstance(error, requests.RequestException)
        values = (error.status_code, error.success, error.code, error.message, error.data)
        assert values == (400, False, int(code), "it says", {"a": 1}) and str(error) == "it says"
        assert type(any_error(envelope(int(code)))) is type(error)


@SIDES
def test_a_code_that_is_none_is_a_key_error_or_a_general_exception(codes, base, class_of, by_error, any_error):
    for code in (1, 999):
        with pytest.raises(KeyError):
            class_of(code)
        with pytest.raises(KeyError):
            by_error(envelope(code))
        error = any_error(envelope(code, 401))
        assert type(error) is base and (error.status_code, error.code, str(error)) == (401, code, "it says")


@SIDES
@pytest.mark.parametrize("text", ["<html>", "[]", "{}", '{"success": false, "code": []}', ""])
def test_a_reply_that_is_no_envelope_still_makes_an_exception(codes, base, class_of, by_error, any_error, text):
    with pytest.raises((ValueError, KeyError, TypeError)):
        by_error(http_error(text))
    error = any_error(http_error(text, 502))
    assert type(error) is base
    assert (error.status_code, error.success, error.code, error.data) == (502, False, 1, {})
    assert str(error) == "502 Reason: the reply does not come from a master or slave"


def test_failures_have_one_form():
    try:
        raise KeyError("x")
    except KeyError as error:
        failure = failure_of(error)
    assert (failure["message"], failure["exception"]) == ("'x'", "KeyError")
    assert failure["traceback"].startswith("Traceback") and failure["traceback"].endswith("KeyError: 'x'\n")
    assert failure_of(ValueError())["message"] == "ValueError"
    assert failure_for("why", "Kind") == {"message": "why", "exception": "Kind", "traceback": ""}


def test_the_address_of_this_machine_reaches_a_server_on_it():
    with socket.create_server(("0.0.0.0", 0)) as server:
        accepted = []
        thread = threading.Thread(target=lambda: accepted.append(server.accept()))
        thread.start()
        socket.create_connection((get_host_ip(), server.getsockname()[1]), 20).close()
        thread.join(20)
        accepted[0][0].close()


@pytest.mark.parametrize(
    ("address", "default_port", "parts"),
    [
        ("http://1.2.3.4", None, ("1.2.3.4", 80, False, "")),
        ("https://1.2.3.4", None, ("1.2.3.4", 443, True, "")),
        ("http://example.com:8888", None, ("example.com", 8888, False, "")),
        ("https://example.com:8787/this/is", None, ("example.com", 8787, True, "/this/is")),
        ("https://example.com/this", 5, ("example.com", 5, True, "/this")),
        ("http://example.com:80/", 5, ("example.com", 80, False, "/")),
        ("http://[::1]:5/x", None, ("::1", 5, False, "/x")),
        ("example.com/x", None, (None, 80, False, "example.com/x")),
    ],
)
def test_addresses_are_split(address, default_port, parts):
    assert split_http_address(address, default_port) == parts


@pytest.mark.parametrize("address", ["http://x:abc", "http://x:70000", "http://x:-1"])
def test_a_port_that_is_none_is_refused(address):
    with pytest.raises(ValueError, match=r"[Pp]ort"):
        split_http_address(address)


@pytest.mark.parametrize(
    ("host", "loopback", "wildcard"),
    [
        ("127.0.0.1", True, False),
        ("localhost", True, False),
        ("::1", True, False),
        ("[::1]", True, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("198.51.100.1", False, False),
        ("unknown.invalid", False, False),
        ("", False, False),
    ],
)
def test_kinds_of_hosts_are_told_apart(host, loopback, wildcard):
    if host:
        assert is_loopback(host) is loopback
    assert is_wildcard(host) is wildcard


def test_ipv6_stands_in_brackets_in_urls():
    assert [url_host(h) for h in ("::1", "[::1]", "1.2.3.4", "x.y")] == ["[::1]", "[::1]", "1.2.3.4", "x.y"]
