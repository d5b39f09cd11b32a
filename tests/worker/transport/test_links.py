"""Tasks between a coordinator and its workers: the same for every transport."""

import contextlib
import gc
import math
import socket
import threading
import time
import weakref

import pytest
import requests

from ding.interaction import ConnectionRefuse, Master, Slave, TaskFail
from ding.utils.page import Page
from ding.worker.transport import http_transport, local_transport
from ding.worker.transport.http_transport import HttpHub
from ding.worker.transport.local_transport import LocalHub, LocalStation
from ding.worker.transport.transport import TaskFailed, WorkerLost, connect, describe
from tests.interaction.fakes import configure_tls

DEADLINE_S = 20  # for what happens at once
SHORT_S = 0.02


class HttpStation(Slave):
    """A slave that runs its tasks by a function."""

    def __init__(self, serve, port=0):
        super().__init__("127.0.0.1", port)
        self._serve = serve

    def _process_task(self, task):
        return self._serve(task)


class Worker:
    """Answers as it is told; `waits` until `go`."""

    def __init__(self):
        self.tasks = []
        self.running, self.go = threading.Event(), threading.Event()

    def serve(self, task):
        self.tasks.append(task)
        return getattr(self, f"do_{task['name']}")(task)

    def do_echo(self, task):
        return {"got": task["value"]}

    def do_say(self, task):
        return task["value"]

    def do_bytes(self, task):
        return {"value": b"bytes"}

    def do_fail(self, task):
        raise TaskFail(result=task["result"], message="told to fail")

    def do_fail_badly(self, task):
        raise TaskFail(result={"value": {1, 2}})

    def do_raise(self, task):
        raise ZeroDivisionError("told to raise")

    def do_exit(self, task):
        raise SystemExit(3)

    def do_wait(self, task):
        self.running.set()
        assert self.go.wait(DEADLINE_S)
        return {"waited": True}


@pytest.fixture(params=["local", "http"])
def kind(request, monkeypatch):
    for name in ("DING_TOKEN", "DING_TOKEN_FILE", "DING_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    return request.param


@pytest.fixture
def hub(kind, stations):  # closed before the stations
    hub = LocalHub() if kind == "local" else HttpHub("127.0.0.1", 0)
    hub.start()
    yield hub
    hub.close()


@pytest.fixture
def stations(kind):
    """Makes stations."""
    made = []

    def make(serve, port=0):
        station = (LocalStation if kind == "local" else HttpStation)(serve, port)
        station.start()
        made.append(station)
        return station

    yield make
    for station in made:
        station.close()


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.go.set()


@pytest.fixture
def station(stations, worker):
    return stations(worker.serve)


@pytest.fixture
def link(hub, station):
    link = hub.link("w", "127.0.0.1", station.port)
    link.connect(DEADLINE_S)
    return link


def run(link, name, timeout_s=DEADLINE_S, **content):
    return link.run({"name": name, **content}, timeout_s)


def in_thread(act, *args):
    outcome = []

    def work():
        try:
            outcome.append(act(*args))
        except Exception as e:
            outcome.append(e)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def join():
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
        return outcome[0]

    return join


# Results.


def test_the_result_of_a_task_comes_back(link, worker):
    assert run(link, "echo", value=[1, 2.5, "x", None, True]) == {"got": [1, 2.5, "x", None, True]}
    assert worker.tasks == [{"name": "echo", "value": [1, 2.5, "x", None, True]}]


def test_tasks_and_results_are_as_json_has_them(link):
    assert run(link, "echo", value={1: (2, 3)}) == {"got": {"1": [2, 3]}}
    assert run(link, "echo", value=math.inf) == {"got": math.inf}


def test_a_task_may_be_any_mapping(link):
    from easydict import EasyDict

    assert link.run(EasyDict(name="echo", value=EasyDict(x=1)), DEADLINE_S) == {"got": {"x": 1}}


@pytest.mark.parametrize(
    ("value", "result"), [(None, {}), ({}, {}), (0, {}), (7, {"result": 7}), ([1], {"result": [1]})]
)
def test_a_result_that_is_no_dict_comes_in_one(link, value, result):
    assert run(link, "say", value=value) == result


def test_many_tasks_follow_each_other(link):
    assert [run(link, "echo", value=i)["got"] for i in range(50)] == list(range(50))


def test_a_large_task_and_result_pass(link):
    value = "x" * 2**20
    assert run(link, "echo", value=value) == {"got": value}


def test_several_workers_are_reached_at_the_same_time(hub, stations):
    workers = [Worker() for _ in range(3)]
    links = []
    for i, worker in enumerate(workers):
        links.append(hub.link(f"w{i}", "127.0.0.1", stations(worker.serve).port))
        links[-1].connect(DEADLINE_S)
    waiting = [in_thread(run, link, "wait") for link in links]
    for worker in workers:
        assert worker.running.wait(DEADLINE_S)
        worker.go.set()
    assert [join() for join in waiting] == [{"waited": True}] * 3


# Failures.


def test_a_failed_task_brings_its_result(link):
    with pytest.raises(TaskFailed, match="worker w failed the task fail: why not") as failed:
        run(link, "fail", result={"message": "why not", "more": [1]})
    assert (failed.value.worker, failed.value.task) == ("w", "fail")
    assert failed.value.result == {"message": "why not", "more": [1]}


def test_an_exception_brings_its_traceback(link):
    with pytest.raises(TaskFailed, match="in do_raise") as failed:
        run(link, "raise")
    result = failed.value.result
    assert (result["message"], result["exception"]) == ("told to raise", "ZeroDivisionError")
    assert "ZeroDivisionError: told to raise" in result["traceback"]


def test_even_the_wish_to_exit_fails_the_task_only(link):
    with pytest.raises(TaskFailed) as failed:
        run(link, "exit")
    assert failed.value.result["exception"] == "SystemExit"
    assert run(link, "echo", value=1) == {"got": 1}


def test_a_result_that_has_no_json_form_fails_the_task(link):
    for name in ("bytes", "fail_badly"):
        with pytest.raises(TaskFailed, match="JSON") as failed:
            run(link, name)
        assert failed.value.result["exception"] == "TypeError"
    assert run(link, "echo", value=1) == {"got": 1}


def test_a_task_that_has_no_json_form_is_an_error_of_whoever_gives_it(link, worker):
    with pytest.raises(TypeError, match="JSON"):
        run(link, "echo", value={1, 2})
    assert worker.tasks == []
    assert run(link, "echo", value=1) == {"got": 1}


def test_a_failure_is_described_by_its_traceback_or_message():
    assert describe({"traceback": "where", "message": "what"}) == "where"
    assert describe({"traceback": "", "message": "what"}) == "what"
    assert describe({"x": 1}) == "{'x': 1}"


# Workers that are not there.


def test_a_worker_that_is_not_there_is_lost_after_a_while(hub):
    started = time.monotonic()
    with pytest.raises(WorkerLost, match="w "):
        hub.link("w", "127.0.0.1", 9).connect(0.2)
    assert time.monotonic() - started < DEADLINE_S


def test_a_link_that_is_not_connected_runs_nothing(hub, station, worker):
    with pytest.raises(WorkerLost, match="w "):
        run(hub.link("w", "127.0.0.1", station.port), "echo", value=1)
    assert worker.tasks == []


def test_a_worker_that_was_closed_takes_no_task(link, station, worker):
    station.close()
    with pytest.raises(WorkerLost, match="closed|w at .* has not accepted the task echo"):
        run(link, "echo", value=1)
    assert worker.tasks == []


def test_a_worker_that_does_not_answer_in_time_is_lost(link, worker):
    with pytest.raises(WorkerLost, match="w has not answered the task wait within 0.02 s"):
        run(link, "wait", SHORT_S)


def test_a_late_result_is_not_taken_for_that_of_another_task(link, worker):
    with pytest.raises(WorkerLost):
        run(link, "wait", SHORT_S)
    worker.go.set()
    outcome = None
    while not isinstance(outcome, dict):  # over HTTP a worker that is busy says so
        try:
            outcome = run(link, "echo", value=1)
        except WorkerLost as e:
            assert "The slave has a task" in str(e)
    assert outcome == {"got": 1}


def test_closing_the_link_ends_a_task_that_runs(link, worker):
    outcome = in_thread(run, link, "wait")
    assert worker.running.wait(DEADLINE_S)
    link.close()
    assert isinstance(outcome(), WorkerLost)
    link.close()


def test_closing_the_hub_ends_a_task_that_runs(hub, link, worker):
    outcome = in_thread(run, link, "wait")
    assert worker.running.wait(DEADLINE_S)
    hub.close()
    assert isinstance(outcome(), WorkerLost)
    hub.close()


def test_a_worker_that_is_closed_during_a_task_is_lost(kind, link, station, worker):
    outcome = in_thread(run, link, "wait")
    assert worker.running.wait(DEADLINE_S)
    if kind == "local":
        station.close(SHORT_S)
    else:
        station.close()
    assert isinstance(outcome(), WorkerLost)


def test_a_closed_link_runs_nothing(link, worker):
    link.close()
    with pytest.raises(WorkerLost):
        run(link, "echo", value=1)
    assert worker.tasks == []


# Again.


def test_a_link_can_be_connected_again(link, worker):
    link.close()
    link.connect(DEADLINE_S)
    assert run(link, "echo", value=2) == {"got": 2}


def test_another_link_reaches_the_worker_when_the_first_is_closed(hub, link, station):
    link.close()
    other = hub.link("other", "127.0.0.1", station.port)
    other.connect(DEADLINE_S)
    assert run(other, "echo", value=3) == {"got": 3}


def test_a_worker_that_comes_up_again_on_its_port_can_be_connected_anew(hub, link, station, stations, worker):
    station.close()
    link.close()
    stations(worker.serve, station.port)
    link.connect(DEADLINE_S)
    assert run(link, "echo", value=4) == {"got": 4}


# Stations.


def test_a_port_belongs_to_one_station(stations, station, worker):
    with pytest.raises(OSError):
        stations(worker.serve, station.port)


def test_stations_find_ports_of_their_own(stations, worker):
    ports = {stations(worker.serve).port for _ in range(3)}
    assert len(ports) == 3 and 0 not in ports


def test_a_station_that_was_closed_is_not_found(hub, station):
    station.close()
    station.close()
    with pytest.raises(WorkerLost):
        hub.link("w", "127.0.0.1", station.port).connect(0.1)


# What only one of them has.


@pytest.mark.parametrize("kind", ["http"])
def test_connecting_waits_until_the_worker_is_there_and_free(hub, link, station, worker):
    other = hub.link("other", "127.0.0.1", station.port)
    with pytest.raises(WorkerLost, match="other at .* does not answer: The slave has a master"):
        other.connect(0.1)
    connecting = in_thread(other.connect, DEADLINE_S)
    link.close()
    assert connecting() is None
    assert run(other, "echo", value=5) == {"got": 5}


@pytest.mark.parametrize("kind", ["http"])
def test_closing_a_link_ends_its_wait_for_the_worker(hub):
    waits = threading.Event()
    link = hub.link("w", "127.0.0.1", 9)
    wait = link._closed.wait

    def tell_and_wait(timeout):
        waits.set()
        return wait(1000)

    link._closed.wait = tell_and_wait
    connecting = in_thread(link.connect, 10_000)
    assert waits.wait(DEADLINE_S)
    link.close()
    assert isinstance(connecting(), WorkerLost)


# How much longer than its limit a wait may take here, on a machine that is busy.
SLACK_S = 5


@contextlib.contextmanager
def lost_within(limit_s):
    begin = time.monotonic()
    with pytest.raises(WorkerLost):
        yield
    assert time.monotonic() - begin < limit_s + SLACK_S


@pytest.mark.parametrize("kind", ["http"])
def test_a_peer_that_accepts_and_says_nothing_is_lost_in_time(hub):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with lost_within(0.3):
            hub.link("w", "127.0.0.1", port).connect(0.3)
        with lost_within(0.3):
            connect(hub, "w", "127.0.0.1", port, 0.3)


@pytest.mark.parametrize("kind", ["http"])
@pytest.mark.parametrize("hook", ["_before_task", "_before_disconnection"])
def test_a_worker_that_stops_to_reply_is_lost_in_time(hook, hub, worker, monkeypatch):
    monkeypatch.setattr(http_transport, "DISCONNECT_S", 0.3)
    with HttpStation(worker.serve) as station:
        monkeypatch.setattr(station, hook, lambda data: worker.go.wait(DEADLINE_S))
        link = hub.link("w", "127.0.0.1", station.port)
        link.connect(DEADLINE_S)
        if hook == "_before_task":
            with lost_within(0.3):
                run(link, "echo", 0.3, value=1)
        begin = time.monotonic()
        link.close()
        assert time.monotonic() - begin < 0.3 + SLACK_S
        worker.go.set()


def test_a_hub_lets_go_of_links_that_were_closed(hub, station):
    links = []
    for number in range(3):
        link = hub.link(f"w{number}", "127.0.0.1", station.port)
        link.connect(DEADLINE_S)
        links.append(weakref.ref(link))
        link.close() if number < 2 else link.drop("for a test")
    del link
    gc.collect()
    assert [link() for link in links] == [None, None, None]


@pytest.mark.parametrize("kind", ["http"])
def test_a_worker_that_refuses_is_lost_at_once(hub):
    class Refusing(HttpStation):
        def _before_connection(self, data):
            raise ConnectionRefuse()

    with Refusing(None) as station, pytest.raises(WorkerLost, match="w at .* refuses the connection"):
        hub.link("w", "127.0.0.1", station.port).connect(DEADLINE_S)


@pytest.mark.parametrize("kind", ["http"])
def test_a_worker_without_a_sign_of_life_is_lost_during_its_task(stations, worker):
    hub = HttpHub("127.0.0.1", 0)
    hub._master = Master("127.0.0.1", 0, heartbeat_tolerance=0.2, heartbeat_check_span=0.1)  # a slave beats every 3 s
    hub.start()
    link = hub.link("w", "127.0.0.1", stations(worker.serve).port)
    link.connect(DEADLINE_S)
    with pytest.raises(WorkerLost, match="w was lost during the task wait: .*no sign of life"):
        run(link, "wait")
    hub.close()


@pytest.mark.parametrize("kind", ["http"])
def test_a_hub_that_never_started_can_be_closed(kind):
    HttpHub("127.0.0.1", 0).close()


@pytest.mark.parametrize("kind", ["local"])
def test_a_station_runs_the_tasks_of_several_links_one_after_the_other(hub, link, station, worker):
    other = hub.link("other", "", station.port)
    other.connect(0)
    first = in_thread(run, link, "wait")
    assert worker.running.wait(DEADLINE_S)
    second = in_thread(run, other, "echo")
    assert [task["name"] for task in worker.tasks] == ["wait"]
    worker.go.set()
    assert first() == {"waited": True} and isinstance(second(), TaskFailed)


@pytest.mark.parametrize("kind", ["local"])
def test_a_station_that_closes_waits_for_its_task(link, station, worker):
    outcome = in_thread(run, link, "wait")
    assert worker.running.wait(DEADLINE_S)
    closing = in_thread(station.close)
    worker.go.set()
    assert outcome() == {"waited": True}
    closing()


@pytest.mark.parametrize("kind", ["local"])
def test_tasks_that_wait_when_a_station_is_given_up_are_not_run(hub, link, station, worker):
    other = hub.link("other", "", station.port)
    other.connect(0)
    first = in_thread(run, link, "wait")
    assert worker.running.wait(DEADLINE_S)
    job = station.submit({"name": "echo", "value": 1})
    station.close(SHORT_S)
    assert isinstance(first(), WorkerLost) and isinstance(job.exception(DEADLINE_S), WorkerLost)
    worker.go.set()
    station._thread.join(DEADLINE_S)
    assert [task["name"] for task in worker.tasks] == ["wait"]


@pytest.mark.parametrize("kind", ["local"])
def test_a_task_may_close_its_own_station(kind):
    station = LocalStation(lambda task: station.close())
    station.start()
    hub = LocalHub()
    link = hub.link("w", "", station.port)
    link.connect(0)
    assert run(link, "anything") == {}
    station._thread.join(DEADLINE_S)
    assert not station._thread.is_alive()


@pytest.mark.parametrize("kind", ["local"])
def test_a_link_that_is_closed_while_it_hands_over_a_task_does_not_wait_for_it(link, station, worker):
    submit = station.submit

    def submit_and_close(task):
        job = submit(task)
        link._station = None  # what `close` of another thread does first
        return job

    station.submit = submit_and_close
    with pytest.raises(WorkerLost, match="worker w was disconnected"):
        run(link, "wait")


# For those who watch.


def test_a_link_tells_how_long_its_worker_has_been_silent(hub, station):
    link = hub.link("w", "127.0.0.1", station.port)
    assert link.silence_s() is None
    link.connect(DEADLINE_S)
    assert 0 <= link.silence_s() < DEADLINE_S
    before = time.monotonic()
    run(link, "echo", value=1)
    assert link.silence_s() <= time.monotonic() - before
    before = time.monotonic()
    with pytest.raises(TaskFailed):
        run(link, "fail", result={})
    assert link.silence_s() <= time.monotonic() - before
    link.drop("it is gone")
    assert 0 <= link.silence_s() < DEADLINE_S


def test_a_hub_serves_pages_where_it_listens(kind):
    page = Page(lambda: "text")
    hub = LocalHub() if kind == "local" else HttpHub("127.0.0.1", 0)
    hub.serve_page("/page", page)
    assert hub.url is None
    hub.start()
    try:
        if kind == "local":
            assert hub.url is None
        else:
            assert requests.get(f"{hub.url}page", timeout=DEADLINE_S).text == "text"
    finally:
        hub.close()
    assert hub.url is None


def test_a_station_may_be_closed_by_the_collection_of_garbage_while_another_starts():
    station = LocalStation(lambda task: {})
    station.start()

    def close_within_the_lock():
        with local_transport._lock:
            station.close()

    thread = threading.Thread(target=close_within_the_lock, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_a_task_that_was_given_up_before_its_turn_is_not_run_in_this_process():
    worker = Worker()
    station, hub = LocalStation(worker.serve), LocalHub()
    station.start()
    first, second = (hub.link(name, "", station.port) for name in ("first", "second"))
    first.connect(0), second.connect(0)
    waiting = threading.Thread(target=first.run, args=({"name": "wait"}, DEADLINE_S))
    waiting.start()
    assert worker.running.wait(DEADLINE_S)
    with pytest.raises(WorkerLost):
        second.run({"name": "echo", "value": 1}, SHORT_S)
    second.close()
    worker.go.set()
    waiting.join(DEADLINE_S)
    assert first.run({"name": "echo", "value": 2}, DEADLINE_S) == {"got": 2}
    assert [task["name"] for task in worker.tasks] == ["wait", "echo"]
    station.close(), hub.close()


def test_a_hub_reaches_its_workers_over_tls_where_that_is_configured(tmp_path, monkeypatch):
    configure_tls(monkeypatch, tmp_path)
    station, hub = HttpStation(Worker().serve), HttpHub("127.0.0.1", 0)
    with station, contextlib.closing(hub):
        hub.start()
        assert hub.url.startswith("https://127.0.0.1:")
        link = hub.link("worker", "127.0.0.1", station.port)
        link.connect(DEADLINE_S)
        assert link.run({"name": "echo", "value": 7}, DEADLINE_S) == {"got": 7}
