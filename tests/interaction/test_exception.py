import json
from functools import partial

import pytest
import requests

from ding.interaction import exception
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
