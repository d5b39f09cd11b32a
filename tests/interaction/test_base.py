import json
import random
import string
import threading

import flask
import pytest
import requests

from ding.interaction.base import (
    CommonErrorCode,
    ControllableContext,
    ControllableService,
    DblEvent,
    ResponsibleException,
    default_func,
    failure_response,
    flask_response,
    get_values_from_response,
    random_token,
    responsible,
    success_response,
    translate_dict_func,
)


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
