import json

import flask
import pytest
import requests

from ding.interaction.base import (
    CommonErrorCode,
    ResponsibleException,
    failure_response,
    flask_response,
    get_values_from_response,
    responsible,
    success_response,
)


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
