"""The learner's loop: order of calls, counters, priorities, the numbers it accepts and those it refuses."""

import itertools
import pathlib
import threading
from functools import partial

import numpy as np
import pytest
import torch

from ding.utils.autolog import TickTime
from ding.utils.config_helper import ConfigError
from ding.utils.registry_factory import LEARNER_REGISTRY
from ding.worker.learner import BaseLearner, LearnerHook, create_learner
from ding.worker.learner.base_learner import BatchSource, TickMonitor, get_simple_monitor_type
from tests.same_state import through_bytes
from tests.worker.learner.fakes import FakePolicy, RecordingWriter, learner_cfg, make_learner


class CallHook(LearnerHook):
    """Calls `function(engine)`."""

    def __init__(self, function, position="after_iter", priority=15, name="call"):
        super().__init__(name, priority, position=position)
        self.function = function

    def __call__(self, engine):
        self.function(engine)


def record(learner, what, position="after_iter"):
    """A list to which each call at `position` appends what `what(learner)` gives."""
    seen = []
    learner.register_hook(CallHook(lambda engine: seen.append(what(engine)), position))
    return seen


# construction


def test_a_new_learner_has_its_documented_state():
    writer = RecordingWriter()
    policy = FakePolicy()
    learner = make_learner(policy, tb_logger=writer, instance_name="me")
    assert learner.learn_info == {"learner_step": 0, "priority_info": {}, "learner_done": False}
    assert (learner.train_iter, learner.last_iter.val, learner.collector_envstep) == (0, 0, 0)
    assert (learner.rank, learner.world_size, learner.exp_name, learner.instance_name) == (0, 1, "exp", "me")
    assert learner.policy is policy and learner._policy is policy and learner.tb_logger is writer
    assert learner.ckpt_name is None and learner.priority_info == {}
    assert learner.log_buffer == {"scalar": {}, "scalars": {}, "histogram": {}}
    assert learner.logger.name == "me_logger"
    assert "a scripted policy" in pathlib.Path("exp/log/me/me_logger.txt").read_text()


@pytest.mark.parametrize(
    ("iterations", "env_steps", "remaining"),
    [(np.inf, np.inf, None), (4, np.inf, 0.75), (np.inf, 8, 0.875), (4, 8, 0.75), (8, 4, 0.75), (1, 8, 0), (8, 1, 0)],
)
def test_what_remains_is_told_by_the_limit_that_is_closer(iterations, env_steps, remaining):
    learner = make_learner()
    learner.max_train_iter, learner.max_env_step = iterations, env_steps
    learner.last_iter.add(1)
    assert learner.progress_remaining(1) == remaining


def test_create_learner_builds_the_registered_type():
    cfg = learner_cfg(type="base", import_names=[])
    learner = create_learner(cfg, policy=FakePolicy(), tb_logger=RecordingWriter(), exp_name="exp")
    assert type(learner) is BaseLearner
    assert LEARNER_REGISTRY["base"] is BaseLearner


def test_the_hook_section_is_required():
    cfg = learner_cfg()
    del cfg.hook
    with pytest.raises(AttributeError):
        BaseLearner(cfg)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_iterations": -1}, "train_iterations = -1"),
        ({"train_iterations": "many"}, "train_iterations = 'many'"),
        ({"dataloader": {"num_workers": -1}}, "dataloader.num_workers = -1"),
        ({"log_policy": "no"}, "log_policy = 'no'"),
        ({"hook": "all"}, "hook = 'all'"),
    ],
)
def test_a_wrong_config_is_refused_at_construction(changes, message):
    with pytest.raises(ConfigError, match=message):
        BaseLearner(learner_cfg(**changes), exp_name="exp")
    assert not pathlib.Path("exp").exists()


def test_log_policy_false_leaves_the_policy_out_of_the_log():
    make_learner(changes={"log_policy": False})
    assert "a scripted policy" not in pathlib.Path("exp/log/learner/learner_logger.txt").read_text()


# ranks


@pytest.mark.parametrize(
    ("changes", "monitors"),
    [({}, False), ({"only_monitor_rank0": False}, True), ({"is_multitask_pipeline": True}, True)],
)
def test_who_monitors_beside_rank_0(changes, monitors):
    learner = make_learner(changes=changes, dist_info=(1, 2))
    assert (learner.rank, learner.world_size) == (1, 2)
    assert learner.is_monitor is monitors and learner.only_monitor_rank0 is not monitors
    assert (learner.tb_logger is not None) is monitors
    assert hasattr(learner, "monitor") is monitors


def test_several_ranks_get_the_reduce_hook_written_into_their_config():
    cfg = learner_cfg({"log_show_after_iter": 1})
    learner = BaseLearner(cfg, dist_info=(0, 2), tb_logger=RecordingWriter(), exp_name="exp")
    assert cfg.hook.log_reduce_after_iter is True
    assert [hook.name for hook in learner._hooks["after_iter"]] == ["log_reduce_after_iter", "log_show"]


# train


def test_train_calls_hooks_and_policy_in_order_with_the_iteration_before_it_moves():
    order = []
    policy = FakePolicy()
    learner = make_learner(policy)
    for position in ("before_iter", "after_iter"):
        learner.register_hook(
            CallHook(lambda engine, p=position: order.append((p, engine.train_iter, len(policy.calls))), position)
        )
    data = [{"obs": 1}]
    returned = learner.train(data, envstep=32, policy_kwargs={"flag": 1})
    learner.train(data)
    assert order == [("before_iter", 0, 0), ("after_iter", 0, 1), ("before_iter", 1, 1), ("after_iter", 1, 2)]
    assert policy.calls[0][0] is data and policy.calls == [(data, {"flag": 1}), (data, {})]
    assert returned == [{"cur_lr": 0.1, "total_loss": 0.5}]


def test_a_list_of_results_moves_the_iteration_once_for_each():
    learner = make_learner(FakePolicy([{"total_loss": 1.0}, {"total_loss": 2.0}, {"total_loss": 3.0}]))
    seen = record(learner, lambda engine: (engine.train_iter, engine.log_buffer["scalar"]["total_loss"]))
    before = record(learner, lambda engine: engine.train_iter, "before_iter")
    assert len(learner.train([])) == 3
    assert seen == [(0, 1.0), (1, 2.0), (2, 3.0)] and before == [0]
    assert learner.train_iter == 3


def test_train_without_a_policy_is_refused():
    learner = BaseLearner(learner_cfg(), tb_logger=RecordingWriter(), exp_name="exp")
    with pytest.raises(AssertionError):
        learner.train([])
    with pytest.raises(AssertionError):
        learner.save_checkpoint()
    with pytest.raises(AttributeError):
        _ = learner.monitor


class Counting(BatchSource):
    def __init__(self, number):
        self.left = number

    def next_batch(self):
        self.left -= 1
        return None if self.left < 0 else [self.left]


def test_start_trains_the_batches_of_its_source_until_there_are_no_more():
    learner = make_learner()
    learner.batch_source = Counting(3)
    trained = record(learner, lambda learner: learner.batch_source.left)
    learner.start()
    assert trained == [2, 1, 0]
    assert learner.train_iter == 3 and learner._learner_done


class Priorities(Counting):
    """Notes what it is told of its batches."""

    envstep = 7

    def __init__(self, number):
        super().__init__(number)
        self.told = []

    def after_train(self, learner):
        self.told.append((self.left, learner.train_iter, learner.collector_envstep, learner.priority_info["priority"]))


def test_a_source_is_told_the_priorities_of_each_of_its_batches():
    learner = make_learner(FakePolicy({"priority": [0.5]}, {"priority": [1.5]}))
    source = Priorities(2)
    source.next_batch = lambda draw=source.next_batch: None if (batch := draw()) is None else [{"obs": batch[0]}]
    assert learner.train_from(source)
    assert source.told == [(1, 1, 7, [0.5]), (0, 2, 7, [1.5])]


@pytest.mark.parametrize(("limits", "trained"), [({"max_iter": 5}, 2), ({"max_batches": 3}, 3), ({"max_iter": 3}, 0)])
def test_no_batch_is_drawn_beyond_a_limit(limits, trained):
    learner, source = make_learner(), Counting(9)
    learner.last_iter.update(3)
    assert learner.train_from(source, **limits)
    assert (learner.train_iter, source.left) == (3 + trained, 9 - trained)


@pytest.mark.parametrize("end", ["stop", "close"])
def test_a_hook_may_end_the_training_on_a_source(end):
    learner, source = make_learner(), Counting(9)
    learner.register_hook(CallHook(lambda engine: engine.train_iter == 1 and getattr(engine, end)()))
    assert not learner.train_from(source)
    assert learner.train_iter == 2


@pytest.mark.differs(
    "sets the env step to -1, in the next checkpoint too, if `train()` is called without envstep",
    "keeps the last known env step",
)
def test_the_envstep_is_kept_when_train_is_given_none():
    learner = make_learner()
    learner.collector_envstep = 640
    learner.train([])
    assert learner.collector_envstep == 640
    learner.train([], 704)
    assert learner.collector_envstep == learner._collector_envstep == 704
    learner.train([], envstep=0)
    assert learner.collector_envstep == 0


def test_priorities_are_popped_and_matched_with_the_items_of_the_buffer():
    priority = [0.1, 0.2]
    learner = make_learner(FakePolicy({"total_loss": 1.0, "priority": priority}))
    data = [{"replay_buffer_idx": 4, "replay_unique_id": "b_4"}, {"obs": 0}]
    assert learner.train(data) == [{"total_loss": 1.0}]
    assert learner.priority_info == {
        "priority": [0.1, 0.2],
        "replay_buffer_idx": [4, None],
        "replay_unique_id": ["b_4", None],
    }
    assert learner.priority_info["priority"] is priority
    assert learner.learn_info["priority_info"] is learner.priority_info


def test_the_priority_of_a_list_is_that_of_its_last_dict():
    learner = make_learner(FakePolicy([{"a": 1.0, "x": 0}, {"a": 2.0, "priority": [3.0]}]))
    assert learner.train([{"replay_buffer_idx": 1}]) == [{"a": 1.0, "x": 0}, {"a": 2.0}]
    assert learner.priority_info["priority"] == [3.0]


@pytest.mark.differs("applies priorities of an earlier iteration again", "clears them at each `train`")
def test_priorities_are_not_kept_from_an_earlier_train():
    learner = make_learner(FakePolicy({"priority": [1.0]}, {"total_loss": 1.0}))
    learner.train([{}])
    assert learner.priority_info != {}
    learner.train([{}])
    assert learner.priority_info == {}


def test_the_priority_info_may_be_assigned():
    learner = make_learner()
    learner.priority_info = {"priority": [1]}
    assert learner.learn_info["priority_info"] == {"priority": [1]}


def test_marked_entries_are_popped_renamed_and_sorted_into_the_log_buffer():
    output = {
        "total_loss": torch.tensor(0.5),
        "[histogram]q": torch.tensor([1.0, 2.0]),
        "[scalars]lr": {"actor": torch.tensor([0.25]), "critic": np.float32(0.5)},
        "ppo[scalars]kl": [1.0, 2.0],
        "grid": torch.tensor([[1.0, 2.0]]),
    }
    learner = make_learner(FakePolicy(output))
    seen = record(learner, lambda engine: {kind: dict(part) for kind, part in engine.log_buffer.items()})
    (returned,) = learner.train([])
    assert list(returned) == ["total_loss", "grid"] and torch.is_tensor(returned["total_loss"])
    seen[0]["scalar"].pop("train_time")
    assert seen == [
        {
            "scalar": {"total_loss": 0.5, "grid": [[1.0, 2.0]]},
            "scalars": {"lr": {"actor": 0.25, "critic": 0.5}, "kl": [1.0, 2.0]},
            "histogram": {"q": [1.0, 2.0]},
        }
    ]


@pytest.mark.differs(
    "fails if a monitored value, priority or iteration is a NumPy number or an int",
    "accepts any number, and any tensor, array or list of one",
)
@pytest.mark.parametrize(
    "value", [2, np.float32(2), np.float64(2), np.int64(2), np.array([2.0]), torch.tensor([2.0]), torch.tensor(2), [2]]
)
def test_every_kind_of_number_is_monitored(value):
    learner = make_learner(FakePolicy({"total_loss": value}), hook={"log_show_after_iter": 1})
    learner.train([])
    assert learner.monitor.avg["total_loss"]() == 2.0
    assert ("scalar", "learner_iter/total_loss_avg", 2.0, 0) in learner.tb_logger.written


@pytest.mark.parametrize("value", ["high", None, torch.tensor([1.0, 2.0])])
def test_a_monitored_value_that_is_no_number_is_told_once_by_name_and_left_out(value, caplog):
    learner = make_learner(FakePolicy({"total_loss": value, "cur_lr": 0.5}), hook={"log_show_after_iter": 1})
    for _ in range(2):
        learner.train([])
    (message,) = [message for message in caplog.messages if "is only shown" in message]
    assert message.startswith("averaging total_loss of learner fails with TypeError: total_loss takes float values")
    assert ("scalar", "learner_iter/cur_lr_avg", 0.5, 1) in learner.tb_logger.written


# NaN

NAN = float("nan")


@pytest.mark.differs(
    "trains on after a NaN or infinite loss, and saves the ruined parameters",
    "raises `FloatingPointError` with the iteration and the keys, and never saves such parameters",
)
@pytest.mark.parametrize(
    "value",
    [
        NAN,
        np.float32("nan"),
        np.float64("nan"),
        torch.tensor(NAN),
        torch.tensor([NAN], requires_grad=True),
        torch.tensor([1.0, NAN]),
        [[1.0], [NAN]],
        np.array([0.0, NAN]),
        {"part": NAN},
    ],
)
def test_a_nan_among_the_scalars_is_an_error_before_any_hook_is_called(value):
    fine = {"total_loss": 1.0}
    learner = make_learner(FakePolicy(fine, {"total_loss": 1.0, "x": value}), hook={"save_ckpt_after_iter": 1})
    seen = record(learner, lambda engine: engine.train_iter)
    learner.train([])
    with pytest.raises(FloatingPointError, match="^x = .*nan.* at train_iter 1;"):
        learner.train([])
    assert seen == [0] and learner.train_iter == 1
    assert [path.name for path in pathlib.Path("exp/ckpt").iterdir()] == ["iteration_0.pth.tar"]


@pytest.mark.guarantees("data")
@pytest.mark.parametrize("value", [float("inf"), np.float32("-inf"), torch.tensor([0.0, float("inf")]), 1e39])
def test_an_infinite_scalar_is_an_error_too(value):
    with pytest.raises(FloatingPointError, match="^total_loss = .*(inf|1e.39).* at train_iter 0;"):
        make_learner(FakePolicy({"total_loss": value})).train([])


# logs and ends


def test_close_flushes_a_shared_writer_and_leaves_it_open():
    writer = RecordingWriter()
    learner = make_learner(tb_logger=writer)
    learner.close()
    learner.close()
    assert (writer.flushed, writer.closed) == (1, 0)


def test_close_closes_the_writer_that_the_learner_made(monkeypatch):
    learner = BaseLearner(learner_cfg(), FakePolicy(), exp_name="exp")
    closed = []
    monkeypatch.setattr(learner.tb_logger, "close", lambda: closed.append(1))
    learner.close()
    learner.close()
    assert closed == [1]


def test_assigning_a_policy_begins_a_new_monitor():
    learner = make_learner(hook={"log_show_after_iter": 1})
    learner.train([])
    learner.policy = FakePolicy(names=("q",))
    assert learner.monitor.avg["q"]() == 0
    assert "total_loss" not in learner.monitor.avg


# states


class Smoothed(LearnerHook):
    """Holds a number of its own."""

    _saved = ("mean",)
    mean = 0.0

    def __call__(self, engine):
        self.mean = 0.9 * self.mean + 0.1 * engine.log_buffer["scalar"]["total_loss"]
        engine.log_buffer["scalar"]["smoothed"] = self.mean


def test_a_learner_that_takes_over_a_state_logs_what_the_other_would_have_logged():
    class Policy(FakePolicy):
        def forward(self, data):
            return {"total_loss": data[0]["value"], "priority": [1.0]}

    def learner_with(writer):
        policy = Policy(names=("total_loss", "smoothed"))
        learner = make_learner(policy, tb_logger=writer, hook={"log_show_after_iter": 4})
        learner.register_hook(Smoothed("smooth", 5, position="after_iter"))
        return learner

    def train(learner, values):
        for value in values:
            learner.train([{"value": value, "replay_unique_id": "a", "replay_buffer_idx": 1}], envstep=int(value))

    writers = [RecordingWriter() for _ in range(2)]
    one, other = map(learner_with, writers)
    train(one, [1.0, 5.0, 2.0])
    one.ckpt_extra["note"] = 3
    train(other, [9.0])
    other.load_state_dict(through_bytes(one.state_dict()))
    assert (other.train_iter, other.collector_envstep, other.ckpt_extra) == (3, 2, {"note": 3})
    assert other.learn_info == one.learn_info
    for learner, writer in zip((one, other), writers, strict=True):
        writer.written.clear()
        train(learner, [4.0, 8.0, 3.0, 1.0, 0.5, 7.0])
        learner.close()
    shown = [[call for call in writer.written if "time" not in call[1]] for writer in writers]
    assert shown[0] == shown[1] and len(shown[0]) == 8


def test_a_state_of_a_learner_with_other_hooks_is_refused():
    one, other = make_learner(FakePolicy()), make_learner(FakePolicy())
    other.register_hook(Smoothed("smooth", 5, position="after_iter"))
    with pytest.raises(ValueError, match="'after_iter'"):
        other.load_state_dict(one.state_dict())
    for learner in (one, other):
        learner.close()


@pytest.mark.differs(
    "shows an empty log buffer to hooks after `LogShowHook`",
    "shows each hook what its iteration has logged",
)
@pytest.mark.parametrize("priority", [5, 50])
@pytest.mark.parametrize("hook", [{"log_show_after_iter": 2}, {}])
def test_a_hook_of_any_priority_sees_what_its_iteration_has_logged(priority, hook):
    class Look(LearnerHook):
        def __call__(self, engine):
            seen.append(dict(engine.log_buffer["scalar"]))

    seen = []
    outputs = [{"total_loss": 1.0, "first": 0.5}, {"total_loss": 2.0}, {"total_loss": 3.0}]
    learner = make_learner(FakePolicy(*outputs), hook=hook)
    learner.register_hook(Look("look", priority, position="after_iter"))
    for _ in outputs:
        learner.train([{}])
    assert [set(values) - {"train_time"} for values in seen] == [
        {"total_loss", "first"},
        {"total_loss"},
        {"total_loss"},
    ]
    assert [values["total_loss"] for values in seen] == [1.0, 2.0, 3.0]


# The averages over the recent past.


BASE = [
    "data_time",
    "train_time",
    "total_collect_step",
    "total_step",
    "total_episode",
    "total_sample",
    "total_duration",
]


def test_a_tick_monitor_averages_its_seven_names():
    monitor = TickMonitor(TickTime(), expire=10)
    assert {name: monitor.avg[name]() for name in BASE} == dict.fromkeys(BASE, 0)
    for i in range(20):
        monitor.data_time = float(i)
        monitor.time.step()
    assert monitor.avg["data_time"]() == np.mean(range(9, 20))
    assert monitor.val["data_time"]() == 19.0
    assert [value for _, value in monitor.range_values["data_time"]()] == [float(i) for i in range(9, 20)]


def test_a_monitored_value_must_be_a_number():
    with pytest.raises(TypeError):
        TickMonitor(TickTime(), expire=10).record({"train_time": "1"})


def test_no_properties_give_the_base_type():
    assert get_simple_monitor_type() is TickMonitor
    assert get_simple_monitor_type([]) is TickMonitor


def test_properties_give_a_subclass_with_the_base_names_sample_count_and_those():
    monitor_type = get_simple_monitor_type(["loss", "q"])
    assert issubclass(monitor_type, TickMonitor)
    monitor = monitor_type(TickTime(), expire=10)
    assert set(monitor.avg) == {*BASE, "sample_count", "loss", "q"}
    monitor.record({"q": 3})
    monitor.time.step()
    assert monitor.avg["q"]() == 3.0 and monitor.avg["loss"]() == 0


@pytest.mark.parametrize("name", ["time", "avg", "val", "range_values", "record", "freeze"])
def test_a_property_cannot_have_the_name_of_a_part_of_the_monitor(name):
    with pytest.raises(ValueError, match=name):
        get_simple_monitor_type(["loss", name])


# A learner that fetches its own data: `setup_dataloader` and `start`.


class FetchingLearner(BaseLearner):
    """Its k-th batch is [{'obs': k, 'size': batch_size}]."""

    def get_data(self, batch_size):
        self.counter = getattr(self, "counter", itertools.count())
        return [{"obs": next(self.counter), "size": batch_size}]


def fetching(policy=None, hook=None, **changes):
    return FetchingLearner(learner_cfg(hook, **changes), policy or FakePolicy(), RecordingWriter(), exp_name="exp")


def names():
    return sorted(path.name for path in pathlib.Path("exp/ckpt").iterdir())


def test_start_trains_the_batches_in_order_between_the_run_hooks():
    policy = FakePolicy()
    learner = fetching(policy, train_iterations=4)
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert [data for data, _ in policy.calls] == [[{"obs": k, "size": 2}] for k in range(4)]
    assert learner.learn_info == {"learner_step": 4, "priority_info": {}, "learner_done": True}
    assert learner.log_buffer["scalar"]["data_time"] >= 0


def test_a_resumed_learner_adds_its_iterations_and_keeps_its_env_step():
    torch.save({"model": {}, "last_iter": 5, "last_step": 77}, "old.pth.tar")
    hook = {"load_ckpt_before_run": "old.pth.tar", "save_ckpt_after_iter": 5, "save_ckpt_after_run": True}
    learner = fetching(hook=hook, train_iterations=10)
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert learner.train_iter == 15
    assert names() == ["iteration_10.pth.tar", "iteration_15.pth.tar", "iteration_5.pth.tar"]
    assert torch.load("exp/ckpt/iteration_15.pth.tar", weights_only=True)["last_step"] == 77


def test_a_learner_without_get_data_is_refused():
    with pytest.raises(AttributeError):
        make_learner(FakePolicy()).setup_dataloader()


def test_get_data_may_be_injected():
    policy = FakePolicy()
    learner = make_learner(policy, changes={"train_iterations": 1})
    learner.get_data = lambda batch_size: [{"obs": "injected"}] * batch_size
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert policy.calls[0][0] == [{"obs": "injected"}] * 2


@pytest.mark.parametrize(("chunk_size", "at_once"), [(1, "ab"), (2, "ac"), (None, "ac")])
def test_a_job_of_a_worker_loads_as_many_samples_as_chunk_size_says_by_default_a_batch(chunk_size, at_once):
    together = threading.Barrier(2, timeout=10)  # who waits here for another is in another thread
    threads = {}

    def load(name):
        threads[name] = threading.get_ident()
        if name in at_once:
            together.wait()
        return name

    policy = FakePolicy()
    dataloader = {"num_workers": 2, "chunk_size": chunk_size}
    learner = make_learner(policy, changes={"train_iterations": 1, "dataloader": dataloader})
    batches = iter([[partial(load, name) for name in "abcd"]])
    learner.get_data = lambda batch_size: next(batches, [])
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert policy.calls[0][0] == ["a", "b", "c", "d"]
    assert (threads["a"] == threads["b"]) is (chunk_size != 1)


def test_an_exception_saves_a_checkpoint_and_reaches_the_caller():
    learner = fetching(FakePolicy({"total_loss": 1.0}, {"total_loss": float("nan")}), train_iterations=9)
    learner.setup_dataloader()
    try:
        with pytest.raises(FloatingPointError):
            learner.start()
    finally:
        learner.close()
    assert names() == ["ckpt_exception.pth.tar"]
    assert learner.learn_info["learner_done"] is False


def test_stop_ends_a_start_after_the_present_iteration_with_its_after_run_hooks():
    class Stopping(FakePolicy):
        def forward(self, data, **kwargs):
            if len(self.calls) == 1:
                learner.stop()
            return super().forward(data, **kwargs)

    policy = Stopping()
    learner = fetching(policy, hook={"save_ckpt_after_run": True})
    learner.setup_dataloader()
    learner.start()
    learner.close()
    assert len(policy.calls) == 2 and names() == ["iteration_2.pth.tar"]
    assert learner.learn_info["learner_done"] is True
