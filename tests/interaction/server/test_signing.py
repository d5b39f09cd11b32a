"""What is signed with the token of the run: what others learn of it, and what they can do without it."""

import contextlib
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from ding.interaction.base import Answer
from ding.interaction.exception import MasterResponseException, SlaveResponseException, SlaveTaskRefused, TaskRefuse
from ding.interaction.server.access import RunToken
from ding.interaction.server.signing import Exchange, SessionKey, Verifier, authorization, digest_of, proof_of_client
from tests.interaction.fakes import (
    DEADLINE_S,
    Adder,
    Listener,
    Signer,
    Watcher,
    free_port,
    outcome,
    pair,
    raw,
    read_message,
    task_id,
)

SECRET = "s3cret-" + "x" * 40
TOKEN = RunToken(SECRET)
SUCCESS = {"success": True, "code": 0, "message": "", "data": None}


def http_reply(status, values):
    body = json.dumps(values).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class Tap(Listener):
    """Passes bytes on to `port` and back, and keeps them; `change` may replace a message."""

    def __init__(self, port):
        super().__init__()
        self._target = port
        self.change = lambda message: message
        self.seen = []  # messages, whole, in the order of their ends

    def serve(self, client):
        server = self.keep(socket.create_connection(("127.0.0.1", self._target), DEADLINE_S))
        self.spawn(self._pass_on, server, client)
        self._pass_on(client, server)

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError), source.makefile("rb") as stream:
            while message := read_message(stream):
                self.seen.append(message)
                sink.sendall(self.change(message))
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class Refusing(Adder):
    """Takes no task, so that no result overtakes its replies."""

    def _before_task(self, data):
        raise TaskRefuse


@contextlib.contextmanager
def tapped(monkeypatch, slave=None):
    """`(slave, connection, tap, other tap)`: a tap before the slave, and one before the master; connected."""
    monkeypatch.setenv("DING_TOKEN", SECRET)
    port = free_port()
    with contextlib.ExitStack() as stack:
        slave = stack.enter_context(slave or Adder(allowed_hosts=["127.0.0.1"], heartbeat_span=0.2))
        to_slave, to_master = stack.enter_context(Tap(slave.port)), stack.enter_context(Tap(port))
        address = f"http://127.0.0.1:{to_master.port}/"
        master = stack.enter_context(Watcher(port=port, my_address=address, allowed_hosts=["127.0.0.1"]))
        connection = master.new_connection("conn", "127.0.0.1", to_slave.port)
        yield slave, connection, to_slave, to_master


@pytest.mark.differs(
    "secrets are sent with each request, to the process that holds the port",
    "requests and replies are signed with the token of the run, which is never sent",
)
def test_the_token_is_never_sent_and_a_run_works_all_the_same(monkeypatch):
    with tapped(monkeypatch) as (slave, connection, to_slave, to_master):
        with connection:
            for i in range(3):
                assert connection.new_task({"a": i, "b": 1}).start().join(DEADLINE_S).result == {"sum": i + 1}
            slave._Slave__heartbeat.beat(slave._Slave__link.session)
        captured = b"".join(to_slave.seen + to_master.seen)
    assert b"POST /task/new" in captured and b"PUT /slave/task/complete" in captured and b"GET /slave/heart" in captured
    assert SECRET.encode() not in captured and SECRET[:12].encode() not in captured
    assert TOKEN.key.hex().encode() not in captured


def send(port, message):
    """The reply to a message as it stands."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as attacker, attacker.makefile("rb") as stream:
        attacker.sendall(message)
        return read_message(stream)


@pytest.mark.differs(
    "a request that was recorded can be sent again",
    "it is executed once: a copy gets the stored reply for a while, and is refused later",
)
def test_what_was_recorded_gets_the_recorded_reply_and_later_none_and_does_nothing(monkeypatch):
    with tapped(monkeypatch, Adder(allowed_hosts=["127.0.0.1"])) as (slave, connection, to_slave, _), connection:
        assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}
        recorded, replies = to_slave.seen[::2], to_slave.seen[1::2]
        assert [message.split(b" ")[1] for message in recorded] == [b"/session", b"/connect", b"/task/new"]
        session = slave._Slave__link.session
        for message, reply in zip(recorded, replies, strict=True):
            assert reply.startswith(b"HTTP/1.1 200 OK") and send(slave.port, message) == reply
        assert slave.seen == [{"a": 1, "b": 1}] and slave._Slave__link.session is session
        for i in range(4):
            assert connection.new_task({"a": i, "b": 1}).start().join(DEADLINE_S).result == {"sum": i + 1}
        for message in recorded[1:]:
            assert send(slave.port, message).startswith(b"HTTP/1.1 401 ")
        assert send(slave.port, recorded[0]) == replies[0]
        assert len(slave.seen) == 5


def test_a_copy_gets_the_reply_of_the_first_also_if_that_was_a_refusal_and_holds_no_more(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with pair() as (_, slave, connection):
        signer = Signer(slave.port, "slave", SECRET)
        head = {"Channel": "0", "Token": "none"}
        new_task = signer.sign("POST", "/task/new", "{}", head)
        nowhere = signer.sign("POST", "/nowhere", "{}", head)
        disconnect = signer.sign("DELETE", "/disconnect", '{"data": {}}', {**head, "Token": connection._last_token})
        for _ in range(2):
            assert outcome(raw(slave.port, "POST", "/task/new", "{}", new_task)) == (403, 302)
            assert outcome(raw(slave.port, "POST", "/nowhere", "{}", nowhere)) == (404, 1)
            assert outcome(raw(slave.port, "DELETE", "/disconnect", '{"data": {}}', disconnect)) == (200, 0)
        connection.give_up("for a test")


def test_a_copy_of_a_request_that_is_being_answered_gets_the_same_reply(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    asked, copied, go = [], threading.Event(), threading.Event()

    class Slow(Adder):
        def _before_task(self, data):
            asked.append(data)
            assert go.wait(DEADLINE_S)
            raise TaskRefuse({"x": 1})

    def wait(exchange):
        copied.set()
        return wait_for_reply(exchange)

    wait_for_reply = Exchange.wait
    monkeypatch.setattr(Exchange, "wait", wait)
    with pair(Slow()) as (_, slave, connection), ThreadPoolExecutor(2) as threads:
        body = json.dumps({"task": {"id": task_id()}, "data": {"y": 2}})
        head = {"Channel": "0", "Token": connection._last_token}
        headers = Signer(slave.port, "slave", SECRET).sign("POST", "/task/new", body, head)
        replies = [threads.submit(raw, slave.port, "POST", "/task/new", body, headers) for _ in range(2)]
        assert copied.wait(DEADLINE_S)
        go.set()
        status, values = replies[0].result(DEADLINE_S)
        assert (status, values["code"], values["data"]) == (403, 602, {"x": 1})
        assert replies[1].result(DEADLINE_S) == (status, values) and asked == [{"y": 2}]


def test_only_one_copy_waits_for_a_reply(monkeypatch):
    exchange, waiting = Exchange("signature"), threading.Event()
    reply = Answer(b"{}", 200, ())

    class Watched(threading.Event):
        def wait(self, timeout=None):
            waiting.set()
            return super().wait(timeout)

    monkeypatch.setattr("ding.interaction.server.signing.Event", Watched)
    assert exchange.begin() and not exchange.begin() and not exchange.is_finished
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(exchange.wait)
        assert waiting.wait(DEADLINE_S)
        assert exchange.wait() is None
        exchange.finish(reply)
        assert first.result(DEADLINE_S) is exchange.wait() is reply


def test_a_failure_of_flask_is_a_signed_500(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with Adder() as slave:
        monkeypatch.setattr("ding.interaction.server.guard.environ_of", lambda head, body: {}["no route"])
        with pytest.raises(SlaveResponseException, match="KeyError: 'no route'") as caught:
            slave.ping()
        assert caught.value.status_code == 500


def test_a_copy_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr("ding.interaction.server.signing._COPY_WAIT_S", 0.01)
    exchange = Exchange("signature")
    assert exchange.begin() and exchange.wait() is None and exchange.wait() is None


def test_a_large_reply_is_not_stored():
    for size, is_stored in ((16 * 2**10, True), (16 * 2**10 + 1, False)):
        exchange = Exchange("signature")
        exchange.finish(Answer(b"x" * size, 200, ()))
        assert not exchange.begin() and exchange.is_finished and (exchange.wait() is not None) is is_stored


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"a": 1', b'"a": 9'),
        (b"/task/new", b"/connect"),
        (b"POST /task/new", b"PUT /task/new"),
        (b"Channel: 0", b"Channel: 1"),
        (b"Token: ", b"Token: 0"),
        (b", body=", b", body=0"),
        (b"number=", b"number=1"),
        (b"signature=", b"signature=0"),
        (b"session=", b"session=0"),
    ],
)
def test_what_is_changed_on_the_way_to_a_slave_is_refused(monkeypatch, old, new):
    with tapped(monkeypatch) as (slave, connection, to_slave, _), connection:
        to_slave.change = lambda message: message.replace(old, new, 1)
        task = connection.new_task({"a": 1, "b": 1})
        with pytest.raises(requests.ConnectionError, match="has not proved that it knows the token"):
            task.start()
        assert slave.seen == []
        to_slave.change = lambda message: message
        assert connection.new_task({"a": 2, "b": 1}).start().join(DEADLINE_S).result == {"sum": 3}


def test_a_reply_that_is_changed_or_made_up_is_not_believed(monkeypatch):
    with tapped(monkeypatch, Refusing(allowed_hosts=["127.0.0.1"])) as (_, connection, to_slave, _), connection:
        made_up = http_reply(b"200 OK", SUCCESS)
        refusal = http_reply(b"403 Forbidden", {"success": False, "code": 302, "message": "Begone.", "data": None})
        for forged in (made_up, refusal):
            to_slave.change = lambda message, forged=forged: forged if message.startswith(b"HTTP") else message
            with pytest.raises((SlaveResponseException, requests.ConnectionError), match="has not proved") as error:
                connection.new_task({"a": 1, "b": 1}).start()
            # Who is not proved to be the slave cannot have the master drop it.
            assert type(error.value) in (SlaveResponseException, requests.ConnectionError)
            assert connection.is_connected
        to_slave.change = lambda message: message.replace(b"refused", b"refuted")
        with pytest.raises(requests.ConnectionError, match="has not proved"):
            connection.new_task({"a": 1, "b": 1}).start()
        to_slave.change = lambda message: message
        with pytest.raises(SlaveTaskRefused):
            connection.new_task({"a": 1, "b": 1}).start()


def test_the_reply_to_one_request_is_none_to_another(monkeypatch):
    with tapped(monkeypatch, Refusing(allowed_hosts=["127.0.0.1"])) as (_, connection, to_slave, _), connection:
        with pytest.raises(SlaveTaskRefused):
            connection.new_task({"a": 1, "b": 1}).start()
        earlier = [message for message in to_slave.seen if message.startswith(b"HTTP")][-1]
        to_slave.change = lambda message: earlier if message.startswith(b"HTTP") else message
        with pytest.raises((SlaveResponseException, requests.ConnectionError), match="has not proved") as error:
            connection.new_task({"a": 1, "b": 1}).start()
        assert not isinstance(error.value, SlaveTaskRefused)
        to_slave.change = lambda message: message


class Imposter(Listener):
    """Replies to everything with `reply`, values or bytes; `told` has what it was sent."""

    def __init__(self, port, reply):
        super().__init__(port)
        self._reply = reply if isinstance(reply, bytes) else http_reply(b"200 OK", reply)
        self.told = []

    def serve(self, client):
        with client.makefile("rb") as stream:
            while message := read_message(stream):
                self.told.append(message)
                client.sendall(self._reply)


@pytest.mark.differs(
    "a process that takes over the port of a slave is given its tasks",
    "only a challenge that requires the token to answer",
)
@pytest.mark.parametrize(
    "data",
    [
        None,
        {"nonce": "0" * 32, "proof": "0" * 64},
        {"nonce": 5, "proof": []},
        {"nonce": "\ud800", "proof": "\udfff"},
        [],
    ],
)
def test_whoever_holds_the_port_of_a_slave_learns_nothing_and_is_not_taken_for_it(monkeypatch, data):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with Watcher() as master, Adder() as slave:
        connection = master.new_connection("conn", "127.0.0.1", slave.port)
        connection.connect()
        connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S)
        slave.close()
        other = master.new_connection("other", "127.0.0.1", slave.port)
        with Imposter(slave.port, {**SUCCESS, "data": data}) as other_server:
            for act in (connection.new_task({"plan": 1}).start, other.connect, connection.disconnect):
                with pytest.raises(SlaveResponseException, match="has not proved that it knows the token"):
                    act()
            assert "other" not in master and not other.is_connected
        told = other_server.told
        assert len(told) == 3 and all(message.startswith(b"POST /session ") for message in told)


DEEP = b"[" * 100_000 + b"]" * 100_000


def in_http(status, body):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.mark.parametrize("secret", ["", SECRET], ids=["without token", "with token"])
@pytest.mark.parametrize(
    "reply",
    [
        in_http(b"200 OK", b'{"data": %s}' % DEEP),
        in_http(b"403 Forbidden", b'{"message": %s}' % DEEP),
        in_http(b"200 OK", b"[]"),
        in_http(b"200 OK", b"<html>It works!</html>"),
        in_http(b"200 OK", b'{"data": %s}' % (b"9" * 10_000)),
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
    ids=["deep", "deep refusal", "list", "page", "long number", "nothing", "another protocol"],
)
def test_whatever_another_server_at_the_port_answers_it_is_no_slave(monkeypatch, reply, secret):
    monkeypatch.setenv("DING_TOKEN", secret)
    says = "has not proved|does not come from a master or slave|another protocol"
    with Watcher() as master:
        port = free_port()
        connection = master.new_connection("conn", "127.0.0.1", port)
        with Imposter(port, reply), pytest.raises((SlaveResponseException, requests.ConnectionError), match=says):
            connection.connect()
        assert not connection.is_connected


def test_whoever_holds_the_port_of_a_master_gets_no_result(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with Adder(heartbeat_span=0.2) as slave:
        master = Watcher()
        with master:
            master.new_connection("conn", "127.0.0.1", slave.port).connect()
        with Imposter(master.port, SUCCESS) as other_server:
            assert slave.lost.wait(DEADLINE_S)
            assert isinstance(slave.losses[0][1], (MasterResponseException, requests.ConnectionError))
        assert all(message.startswith(b"POST /session ") for message in other_server.told)


def test_without_the_token_nothing_can_be_asked_of_either(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with pair() as (master, slave, _):
        monkeypatch.delenv("DING_TOKEN")
        head = {"Channel": "0", "Token": slave._Slave__link.session.token}
        for port, method, path in (
            (slave.port, "POST", "/task/new"), (slave.port, "DELETE", "/disconnect"), (slave.port, "POST", "/session"),
            (master.port, "PUT", "/slave/task/complete"), (master.port, "GET", "/slave/heartbeat"),
        ):  # fmt: skip
            assert outcome(raw(port, method, path, headers=head)) == (401, 1)
        with Watcher() as other, pytest.raises(SlaveResponseException, match="DING_TOKEN") as error:
            other.new_connection("conn", "127.0.0.1", slave.port).connect()
        assert (type(error.value), error.value.status_code) == (SlaveResponseException, 401)
        monkeypatch.setenv("DING_TOKEN", SECRET)


def test_a_server_without_the_token_is_none_to_those_who_have_it(monkeypatch):
    with Adder() as slave:
        monkeypatch.setenv("DING_TOKEN", SECRET)
        with Watcher() as master, pytest.raises(SlaveResponseException, match="has not proved") as error:
            master.new_connection("conn", "127.0.0.1", slave.port).connect()
        assert error.value.status_code == 404 and slave._Slave__link.session is None


def test_a_server_that_was_started_again_is_asked_for_another_session(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    port = free_port()
    with Watcher() as master:
        connection = master.new_connection("conn", "127.0.0.1", port)
        for _ in range(3):
            with Adder(port=port), connection:
                assert connection.new_task({"a": 1, "b": 1}).start().join(DEADLINE_S).result == {"sum": 2}


def begin(verifier, nonce="n", kind="slave", host="h:1", token=TOKEN):
    answer = verifier.begin({"host": host, "nonce": nonce, "proof": proof_of_client(token, kind, host, nonce)})
    return answer and (answer[0], SessionKey(token, kind, host, nonce, answer[0]))


def request(session, number, body=b"{}"):
    name, key = session
    signature = key.of_request(str(number), "GET", "/x", {}, str(len(body)), digest_of(body))
    fields = {"session": name, "number": number, "body": digest_of(body), "signature": signature}
    return {"authorization": authorization(**fields), "content-length": str(len(body))}


def test_a_session_begins_with_a_proof_for_this_server_and_once():
    verifier = Verifier(TOKEN, "slave")
    assert begin(verifier, token=RunToken("other")) is None
    assert begin(verifier, kind="master") is None
    assert verifier.begin({"host": "h:2", "nonce": "n", "proof": proof_of_client(TOKEN, "slave", "h:1", "n")}) is None
    assert verifier.begin({}) is None
    first = begin(verifier)
    assert first is not None and begin(verifier)[0] == first[0]
    assert begin(verifier, nonce="other")[0] != first[0] != begin(verifier, host="h:2")[0]
    signed = verifier.verify("GET", "/x", request(first, 1))
    assert begin(verifier)[0] == first[0]
    assert verifier.verify("GET", "/x", request(first, 1)).exchange is signed.exchange


def test_a_request_is_known_by_its_number_for_a_while_and_too_old_after_it():
    verifier = Verifier(TOKEN, "slave")
    session = begin(verifier)
    numbers = (1, 2, 5, 7, 8, 10**15)
    exchanges = []
    for i, number in enumerate(numbers):
        exchanges.append(verifier.verify("GET", "/x", request(session, number)).exchange)
        for known in range(i + 1):
            again = verifier.verify("GET", "/x", request(session, numbers[known]))
            assert (again.exchange is exchanges[known]) if known > i - 4 else again is None
    for number in ("-1", "x", "", "1" * 30, "\u0663", "3", "08"):
        assert verifier.verify("GET", "/x", request(session, number)) is None


def test_another_request_with_a_number_that_was_used_is_refused():
    verifier = Verifier(TOKEN, "slave")
    session = begin(verifier)
    assert verifier.verify("GET", "/x", request(session, 1, b"abc")) is not None
    assert verifier.verify("GET", "/x", request(session, 1, b"abd")) is None
    assert verifier.verify("GET", "/x", request(session, 1, b"abc")) is not None


def test_sessions_are_bounded_and_new_ones_oust_none_that_is_used():
    verifier = Verifier(TOKEN, "slave", limit=4)
    used = [begin(verifier, nonce=f"used {i}") for i in range(4)]
    assert all(verifier.verify("GET", "/x", request(session, 1)) for session in used)
    new = [begin(verifier, nonce=f"new {i}") for i in range(100)]
    assert all(verifier.verify("GET", "/x", request(session, 2)) for session in used)
    assert [verifier.verify("GET", "/x", request(session, 1)) is not None for session in new[-5:]] == [False] + [
        True
    ] * 4
    assert not any(verifier.verify("GET", "/x", request(session, 3)) for session in used)


def test_a_signed_request_has_the_body_that_was_announced():
    signed = Verifier(TOKEN, "slave")
    session = begin(signed)
    verified = signed.verify("GET", "/x", request(session, 1, b"abc"))
    assert verified.is_body(b"abc") and not verified.is_body(b"abd")
    wrong_length = {**request(session, 2, b"abc"), "content-length": "4"}
    assert signed.verify("GET", "/x", wrong_length) is None


def test_a_signed_request_whose_body_is_another_does_nothing(monkeypatch):
    monkeypatch.setenv("DING_TOKEN", SECRET)
    with Adder() as slave:
        signer = Signer(slave.port, "slave", SECRET)
        head = {"Channel": "0", "Token": "T"}
        body = '{"master": {"address": "http://127.0.0.1:9"}, "data": {}}'
        headers = signer.sign("POST", "/connect", body, head)
        assert outcome(raw(slave.port, "POST", "/connect", body.replace("9", "8"), headers)) == (401, 1)
        assert slave._Slave__link.session is None
        assert outcome(raw(slave.port, "POST", "/connect", body, headers)) == (200, 0)
        session = slave._Slave__link.session
        assert session.address == "http://127.0.0.1:9"
        assert outcome(raw(slave.port, "POST", "/connect", body.replace("9", "8"), headers)) == (401, 1)
        assert outcome(raw(slave.port, "POST", "/connect", body, headers)) == (200, 0)
        assert slave._Slave__link.session is session
