import pytest

from ding.utils import exist_operator_server, get_operator_server_kwargs
from ding.utils.config_helper import ConfigError

VARIABLES = ("SERVER_URL", "SERVER_API_VERSION", "POD_NAMESPACE", "POD_NAME")


@pytest.fixture(autouse=True)
def _no_operator(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(f"KUBERNETES_{name}", raising=False)


def test_an_operator_is_there_if_the_environment_names_it(monkeypatch):
    assert exist_operator_server() is False
    monkeypatch.setenv("KUBERNETES_SERVER_URL", "10.0.0.1:8080")
    assert exist_operator_server() is True


def test_the_environment_says_where_it_is_and_who_asks(monkeypatch):
    for name, value in zip(VARIABLES, ("10.0.0.1:8080", "v2", "ours", "job-coordinator"), strict=True):
        monkeypatch.setenv(f"KUBERNETES_{name}", value)
    assert get_operator_server_kwargs({}) == {
        "host": "10.0.0.1",
        "port": 8080,
        "api_version": "v2",
        "namespace": "ours",
        "name": "job-coordinator",
    }


def test_the_config_comes_first_and_the_rest_has_defaults(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVER_URL", "10.0.0.1:8080")
    monkeypatch.setenv("KUBERNETES_SERVER_API_VERSION", "v2")
    assert get_operator_server_kwargs({"system_addr": "op:1", "api_version": "/v3"}) == {
        "host": "op",
        "port": 1,
        "api_version": "/v3",
        "namespace": "default",
        "name": "dijob-example-coordinator",
    }
    monkeypatch.delenv("KUBERNETES_SERVER_API_VERSION")
    assert get_operator_server_kwargs({})["api_version"] == "/v1alpha1"


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("op:81", ("op", 81)),
        ("https://op:81", ("op", 81)),
        ("http://op.example.com/path", ("op.example.com", 80)),
        ("https://op", ("op", 443)),
        ("[::1]:82", ("::1", 82)),
    ],
)
def test_an_address_may_be_a_url(address, place):
    kwargs = get_operator_server_kwargs({"system_addr": address})
    assert (kwargs["host"], kwargs["port"]) == place


@pytest.mark.parametrize("address", ["op:port", "op:99999", ":80", "http://", "http://user@op:1"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigError, match="it must be host:port, or a URL"):
        get_operator_server_kwargs({"system_addr": address})


def test_without_an_address_there_is_no_operator():
    with pytest.raises(ConfigError, match="set system_addr or the variable KUBERNETES_SERVER_URL"):
        get_operator_server_kwargs({})
