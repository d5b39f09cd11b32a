from ding.interaction import config


def test_the_constants_are_as_documented():
    documented = {
        "GLOBAL_HOST": "0.0.0.0",
        "LOCAL_HOST": "127.0.0.1",
        "DEFAULT_MASTER_PORT": 7235,
        "DEFAULT_SLAVE_PORT": 7236,
        "DEFAULT_CHANNEL": 0,
        "DEFAULT_REQUEST_RETRIES": 5,
        "DEFAULT_REQUEST_RETRY_WAITING": 1.0,
        "DEFAULT_REQUEST_TIMEOUT": (5.0, 30.0),
        "DEFAULT_HEARTBEAT_SPAN": 3.0,
        "MIN_HEARTBEAT_SPAN": 0.2,
        "DEFAULT_HEARTBEAT_TOLERANCE": 17.0,
        "MIN_HEARTBEAT_TOLERANCE": 0.2,
        "DEFAULT_HEARTBEAT_CHECK_SPAN": 1.0,
        "MIN_HEARTBEAT_CHECK_SPAN": 0.1,
        "DEFAULT_BODY_LIMIT": 64 * 1024 * 1024,
    }
    assert {name: getattr(config, name) for name in documented} == documented
