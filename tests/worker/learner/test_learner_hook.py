"""What the built-in hooks write: checkpoints, tables, TensorBoard."""

import datetime
import pathlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from easydict import EasyDict

from ding.torch_utils.data_helper import build_log_buffer
from ding.utils.config_helper import ConfigError
from ding.worker.learner import BaseLearner
from ding.worker.learner.learner_hook import (
    Hook,
    LearnerHook,
    LoadCkptHook,
    LogReduceHook,
    LogShowHook,
    PeriodicHook,
    SaveCkptHook,
    add_learner_hook,
    build_learner_hook_by_cfg,
    find_char,
    hook_mapping,
    merge_hooks,
    register_learner_hook,
    show_hooks,
    simplified_hook_mapping,
)
from tests.worker.learner.fakes import FakePolicy, RecordingWriter, learner_cfg, make_learner


def files(folder="exp/ckpt"):
    path = pathlib.Path(folder)
    return sorted(file.name for file in path.iterdir()) if path.exists() else []


def load(name, folder="exp/ckpt"):
    return torch.load(f"{folder}/{name}", weights_only=True)


# every n iterations


@pytest.mark.parametrize(
    ("position", "expected"), [("after_iter", [0, 3, 6]), ("before_iter", [0, 3, 6]), ("after_run", range(7))]
)
def test_a_periodic_hook_acts_every_n_iterations_and_always_at_the_ends_of_a_run(position, expected):
    class Hook(PeriodicHook):
        acted = []

        def act(self, engine):
            self.acted.append(engine.train_iter)

    hook = Hook("h", 1, position=position, ext_args=EasyDict(freq=3))
    for train_iter in range(7):
        hook(EasyDict(train_iter=train_iter))
    assert hook._freq == 3
    assert hook.acted == list(expected)


# saving


def test_checkpoints_are_written_every_n_iterations_and_after_the_run():
    learner = make_learner(hook={"save_ckpt_after_iter": 3, "save_ckpt_after_run": True})
    for _ in range(5):
        learner.train([], 8)
    assert files() == ["iteration_0.pth.tar", "iteration_3.pth.tar"]
    learner.call_hook("after_run")
    assert files() == ["iteration_0.pth.tar", "iteration_3.pth.tar", "iteration_5.pth.tar"]
    assert load("iteration_3.pth.tar") == {"model": {"w": 1.5}, "last_iter": 3, "last_step": 8}


@pytest.mark.differs("keeps every checkpoint", "can keep the newest ones only (`keep_checkpoints`)")
@pytest.mark.parametrize("by_hook", [False, True])
def test_only_the_newest_checkpoints_of_iterations_are_kept_and_others_stay(by_hook):
    full = EasyDict(name="s", type="save_ckpt", position="after_iter", priority=20, ext_args={"freq": 2, "keep": 2})
    learner = make_learner(
        hook={"save_ckpt_after_iter": full if by_hook else 2},
        changes={"keep_checkpoints": 9 if by_hook else 2},
    )
    pathlib.Path("exp/ckpt").mkdir(parents=True)
    for name in ("iteration_x.pth.tar", "iteration_1.pth.tar.bak", "mine.pth.tar"):
        pathlib.Path("exp/ckpt", name).touch()
    others = files()
    learner.save_checkpoint("ckpt_best.pth.tar")
    for _ in range(3):
        learner.train([])
    assert files() == sorted([*others, "ckpt_best.pth.tar", "iteration_0.pth.tar", "iteration_2.pth.tar"])
    for _ in range(8):
        learner.train([])
    assert files() == sorted([*others, "ckpt_best.pth.tar", "iteration_8.pth.tar", "iteration_10.pth.tar"])


def test_what_a_learner_adds_to_its_checkpoints_is_not_given_to_its_policy():
    learner = make_learner()
    learner.ckpt_extra = {"task_id": "t"}
    learner.save_checkpoint("a.pth.tar")
    assert load("a.pth.tar")["learner"] == {"task_id": "t"}
    other = make_learner()
    LoadCkptHook("l", 1, position="before_run", ext_args={"load_path": "exp/ckpt/a.pth.tar"})(other)
    assert other.policy.state == {"model": {"w": 1.5}}


def test_a_learner_of_another_name_has_a_folder_of_its_own():
    learner = make_learner(instance_name="learner_a")
    learner.save_checkpoint()
    assert files("exp/ckpt_learner_a") == ["iteration_0.pth.tar"] and files() == []


def test_save_checkpoint_takes_a_name_for_one_time():
    learner = make_learner(hook={"save_ckpt_after_run": True})
    learner.save_checkpoint("ckpt_best.pth.tar")
    assert learner.ckpt_name is None
    learner.ckpt_name = "mine.pth.tar"
    learner.save_checkpoint()
    assert learner.ckpt_name is None
    learner.save_checkpoint()
    assert files() == ["ckpt_best.pth.tar", "iteration_0.pth.tar", "mine.pth.tar"]


@pytest.mark.differs(
    "saves after the run with `save_ckpt_after_run=False`, and reduces logs with `log_reduce_after_iter=False`",
    "leaves these hooks out; `save_checkpoint` still works",
)
def test_save_ckpt_after_run_false_saves_nothing_after_the_run_yet_a_checkpoint_can_be_saved():
    learner = make_learner(hook={"save_ckpt_after_run": False})
    learner.call_hook("after_run")
    assert files() == []
    learner.save_checkpoint("ckpt_best.pth.tar")
    assert files() == ["ckpt_best.pth.tar"]


def test_save_checkpoint_calls_a_hook_of_ones_own(monkeypatch):
    called = []

    class OwnSave(SaveCkptHook):
        def act(self, engine):
            called.append(engine.ckpt_name)

    monkeypatch.setitem(hook_mapping, "save_ckpt", OwnSave)
    make_learner().save_checkpoint("a")
    make_learner(hook={"save_ckpt_after_run": True}).save_checkpoint("b")
    assert called == ["a", "b"] and files() == []


def test_only_rank_0_saves():
    learner = make_learner(dist_info=(1, 2))
    learner.save_checkpoint()
    assert files() == []


@pytest.mark.differs(
    "leaves half a checkpoint or other file if writing it fails, in place of the old one",
    "writes every file whole or not at all",
)
def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(monkeypatch):
    learner = make_learner()
    learner.save_checkpoint("a.pth.tar")

    def fail(data, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError):
        learner.save_checkpoint("a.pth.tar")
    assert files() == ["a.pth.tar"] and load("a.pth.tar")["model"] == {"w": 1.5}


@pytest.mark.guarantees("data")
def test_parameters_that_a_nan_has_ruined_are_never_written():
    policy = FakePolicy()
    learner = make_learner(policy, hook={"save_ckpt_after_iter": 1, "save_ckpt_after_run": True})
    policy.state = {"model": {"w": torch.ones(1)}}
    learner.train([])
    policy.state = {"model": {"w": torch.ones(1)}, "target_model": {"w": torch.tensor([1.0, float("nan")])}}
    with pytest.raises(FloatingPointError, match="NaN at train_iter 1 .*target_model.w"):
        learner.train([])
    for save in (lambda: learner.save_checkpoint("ckpt_best.pth.tar"), lambda: learner.call_hook("after_run")):
        with pytest.raises(FloatingPointError):
            save()
    assert files() == ["iteration_0.pth.tar"]


def test_what_a_checkpoint_holds_is_read_without_unpickling():
    network = torch.nn.BatchNorm1d(2)
    network(torch.ones(3, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=np.float64(0.5))
    policy = FakePolicy()
    policy.state = {
        "model": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "mean": np.arange(3.0),
        "count": np.int64(4),
        "names": ("a", b"b", None, True, np.bool_(False), 1j, np.str_("s")),
        "nested": {"list": [np.float32(0.5), {np.int64(1): torch.Size([2])}], "easy": EasyDict(dtype=torch.float16)},
    }
    learner = make_learner(policy)
    learner.last_iter.update(np.int64(3))
    learner.collector_envstep = np.int64(9)
    learner.save_checkpoint("x")
    state = load("x")
    assert state["model"]._metadata == network.state_dict()._metadata
    assert torch.equal(state["model"]["running_mean"], network.running_mean)
    assert state["optimizer"] == optimizer.state_dict()
    assert state["mean"].tolist() == [0.0, 1.0, 2.0]
    assert state["names"] == ("a", b"b", None, True, False, 1j, "s")
    assert type(state["names"][4]) is bool and type(state["count"]) is int
    assert state["nested"] == {"list": [0.5, {1: torch.Size([2])}], "easy": {"dtype": torch.float16}}
    assert (state["last_iter"], state["last_step"]) == (3, 9) and type(state["last_iter"]) is int


# loading


def test_a_checkpoint_restores_the_counters_and_the_rest_goes_to_the_policy():
    make_learner().save_checkpoint("none")
    torch.save({"model": {"w": 2.5}, "last_iter": 5, "last_step": 320, "extra": [1]}, "old.pth.tar")
    policy = FakePolicy()
    learner = make_learner(policy, hook={"load_ckpt_before_run": "old.pth.tar"})
    assert learner.train_iter == 0
    learner.call_hook("before_run")
    assert (learner.train_iter, learner.collector_envstep) == (5, 320)
    assert policy.state == {"model": {"w": 2.5}, "extra": [1]}
    learner.train([])
    learner.save_checkpoint("new.pth.tar")
    assert load("new.pth.tar") == {"model": {"w": 2.5}, "extra": [1], "last_iter": 6, "last_step": 320}


def test_a_file_without_counters_leaves_them_alone(tmp_path):
    torch.save({"model": {"w": 1}}, "plain.pth.tar")
    learner = make_learner(hook={"load_ckpt_before_run": tmp_path / "plain.pth.tar"})
    learner.last_iter.update(3)
    learner.call_hook("before_run")
    assert (learner.train_iter, learner.collector_envstep) == (3, 0)


def test_a_missing_checkpoint_is_an_error_that_names_file_and_config_key():
    learner = make_learner(hook={"load_ckpt_before_run": "nowhere/x.pth.tar"})
    with pytest.raises(FileNotFoundError, match=r"nowhere/x.pth.tar.*load_ckpt_before_run"):
        learner.call_hook("before_run")


def test_a_file_that_holds_no_dict_is_refused():
    torch.save([1], "list.pth.tar")
    with pytest.raises(TypeError):
        make_learner(hook={"load_ckpt_before_run": "list.pth.tar"}).call_hook("before_run")


class Custom:
    pass


def test_a_file_with_foreign_objects_is_loaded_only_when_it_is_trusted():
    torch.save({"model": {}, "custom": Custom()}, "custom.pth.tar")
    with pytest.raises(Exception, match="trust_pickle"):
        make_learner(hook={"load_ckpt_before_run": "custom.pth.tar"}).call_hook("before_run")
    ext_args = {"load_path": "custom.pth.tar", "trust_pickle": True}
    learner = make_learner(hook={"a": EasyDict(name="l", type="load_ckpt", position="before_run", ext_args=ext_args)})
    learner.call_hook("before_run")
    assert isinstance(learner.policy.state["custom"], Custom)


# showing


def test_averages_are_written_under_both_axes_every_n_iterations():
    outputs = [{"cur_lr": 0.5, "total_loss": float(i)} for i in range(5)]
    learner = make_learner(FakePolicy(*outputs), hook={"log_show_after_iter": 3})
    for i in range(5):
        learner.train([], 100 + i)
    assert learner.tb_logger.written == [
        ("scalar", "learner_iter/cur_lr_avg", 0.5, 0),
        ("scalar", "learner_step/cur_lr_avg", 0.5, 100),
        ("scalar", "learner_iter/total_loss_avg", 0.0, 0),
        ("scalar", "learner_step/total_loss_avg", 0.0, 100),
        ("scalar", "learner_iter/cur_lr_avg", 0.5, 3),
        ("scalar", "learner_step/cur_lr_avg", 0.5, 103),
        ("scalar", "learner_iter/total_loss_avg", 1.5, 3),
        ("scalar", "learner_step/total_loss_avg", 1.5, 103),
    ]
    text = pathlib.Path("exp/log/learner/learner_logger.txt").read_text()
    assert "train iteration 3, env step 103" in text and "1.500000" in text and "total_loss_avg" in text


def test_an_average_is_over_the_last_eleven_values():
    outputs = [{"total_loss": float(i)} for i in range(31)]
    learner = make_learner(FakePolicy(*outputs, names=("total_loss",)), hook={"log_show_after_iter": 30})
    for _ in range(31):
        learner.train([])
    tag, value, step = learner.tb_logger.written[-2][1:]
    assert (tag, value, step) == ("learner_iter/total_loss_avg", 25.0, 30)


@pytest.mark.differs("drops `[scalars]` entries of the log", "writes them with `add_scalars`")
def test_histograms_and_groups_of_scalars_are_written_when_due_with_their_newest_values():
    outputs = [
        {"[histogram]q": torch.tensor([float(i), 1.0]), "[scalars]lr": {"a": float(i)}, "[scalars]kl": [0.5, float(i)]}
        for i in range(4)
    ]
    learner = make_learner(FakePolicy(*outputs, names=()), hook={"log_show_after_iter": 2}, instance_name="le")
    for _ in range(4):
        learner.train([])
    assert learner.tb_logger.written == [
        ("histogram", "le/q", [0.0, 1.0], 0),
        ("scalars", "le/lr", {"a": 0.0}, 0),
        ("scalars", "le/kl", {"0": 0.5, "1": 0.0}, 0),
        ("histogram", "le/q", [2.0, 1.0], 2),
        ("scalars", "le/lr", {"a": 2.0}, 2),
        ("scalars", "le/kl", {"0": 0.5, "1": 2.0}, 2),
    ]


def test_the_log_buffer_is_emptied_before_each_iteration_and_keeps_its_type():
    outputs = {"total_loss": 1.0, "[histogram]q": [1.0]}, {"total_loss": 2.0}
    learner = make_learner(FakePolicy(*outputs), hook={"log_show_after_iter": 50})
    sections = list(learner.log_buffer.values())
    for histogram, loss in (({"q": [1.0]}, 1.0), ({}, 2.0)):
        learner.train([])
        assert learner.log_buffer["scalar"].pop("train_time") >= 0
        assert learner.log_buffer == {"scalar": {"total_loss": loss}, "scalars": {}, "histogram": histogram}
    assert list(map(id, learner.log_buffer.values())) == list(map(id, sections))


@pytest.mark.differs(
    "lets a logged value named `time` or `avg` replace the monitor's own, and fails in `hasattr` and `copy` of a "
    "logged model",
    "keeps such values apart; both work",
)
def test_scalars_that_are_not_monitored_are_kept_aside_and_never_replace_a_part_of_the_monitor():
    learner = make_learner(FakePolicy({"note": "x", "time": 3.0, "avg": 4.0}), hook={"log_show_after_iter": 1})
    learner.train([])
    learner.train([])
    assert learner.monitor.note == "x" and learner.monitor.time.time() == 2


# The hook table: built from config, kept in order, merged.


POSITIONS = ["before_run", "after_run", "before_iter", "after_iter"]
FREQ = "log_show_after_iter"


class NothingHook(LearnerHook):
    def __call__(self, engine):
        return None


def nothing(name="n", priority=10, position="after_iter"):
    return NothingHook(name, priority, position=position)


def names(hooks):
    return {position: [hook.name for hook in row] for position, row in hooks.items()}


def test_a_hook_tells_its_name_priority_and_position():
    hook = nothing("x", 3, "before_run")
    assert (hook.name, hook.priority, hook.position) == ("x", 3, "before_run")
    assert LearnerHook.positions == POSITIONS
    for attribute in ("name", "priority", "position"):
        with pytest.raises(AttributeError):
            setattr(hook, attribute, 1)


def test_abstract_hooks_cannot_be_made():
    with pytest.raises(TypeError):
        LearnerHook("n", 1, position="after_iter")
    with pytest.raises(TypeError):
        Hook("n", 1)


def test_a_subclass_that_takes_no_ext_args_is_built_all_the_same():
    register_learner_hook("nothing", NothingHook)
    try:
        form = EasyDict(name="n", type="nothing", position="before_iter", ext_args={"freq": 3})
        (hook,) = build_learner_hook_by_cfg({"any_key": form})["before_iter"]
    finally:
        del hook_mapping["nothing"]
    assert type(hook) is NothingHook and hook.priority == 100


@pytest.mark.parametrize(
    ("args", "index"),
    [
        (("a_b_c", "_", 1), 1),
        (("a_b_c", "_", 2), 3),
        (("a_b_c", "_", 3), -1),
        (("a_b_c", "_", 1, True), 3),
        (("a_b_c", "_", 2, True), 1),
        (("a_b_c", "_", 3, True), -1),
        (("", "_", 1), -1),
    ],
)
def test_find_char_gives_the_index_of_an_occurrence(args, index):
    assert find_char(*args) == index


def test_the_default_hooks():
    hooks = build_learner_hook_by_cfg(
        EasyDict(load_ckpt_before_run="", log_show_after_iter=100, save_ckpt_after_iter=10000, save_ckpt_after_run=True)
    )
    assert list(hooks) == POSITIONS
    assert names(hooks) == {
        "before_run": ["load_ckpt"],
        "after_run": ["save_ckpt_after_run"],
        "before_iter": [],
        "after_iter": ["log_show", "save_ckpt_after_iter"],
    }
    assert [type(hook) for hook in hooks["after_iter"]] == [LogShowHook, SaveCkptHook]
    assert [hook._freq for hook in hooks["after_iter"]] == [100, 10000]
    assert [hook.priority for row in hooks.values() for hook in row] == [20] * 4


def test_simplified_keys_come_from_a_plain_dict_too_and_log_reduce_is_first():
    hooks = build_learner_hook_by_cfg({"log_show_after_iter": 1e2, "log_reduce_after_iter": True})
    assert [type(hook) for hook in hooks["after_iter"]] == [LogReduceHook, LogShowHook]
    assert hooks["after_iter"][0].priority == 10 and hooks["after_iter"][1]._freq == 100


@pytest.mark.parametrize("off", [False, 0, None, ""])
def test_a_falsy_switch_leaves_its_hook_out(off):
    hooks = build_learner_hook_by_cfg({"save_ckpt_after_run": off, "log_reduce_after_iter": off})
    assert not any(hooks.values())


def full(**changes):
    form = {"name": "n", "type": "save_ckpt", "position": "after_iter", **changes}
    return {"key": EasyDict({name: value for name, value in form.items() if value is not None})}


@pytest.mark.parametrize(
    ("cfg", "error", "word"),
    [
        *(({FREQ: freq}, ConfigError, f"freq = {freq!r}") for freq in (0, 2.5, True, "often", None)),
        ({"save_ckpt_after_iter": 0}, ConfigError, "freq = 0"),
        ({"log_show_after_iters": 5}, AttributeError, "did you mean 'log_show_after_iter'"),
        (full(type="save_ckpts"), KeyError, "save_ckpts"),
        (full(position="never"), AssertionError, "position = 'never'"),
        *((full(**{field: None}), AttributeError, f"lacks {field}") for field in ("name", "type", "position")),
        ({"key": {"name": "n", "type": "save_ckpt", "position": "after_iter"}}, AttributeError, "EasyDict"),
        (full(type="load_ckpt", position="before_run"), KeyError, "load_path"),
    ],
)
def test_a_wrong_config_of_a_hook_is_refused(cfg, error, word):
    with pytest.raises(error, match=word):
        build_learner_hook_by_cfg(cfg)


def test_the_full_form_may_have_any_key_or_a_simplified_one():
    hooks = build_learner_hook_by_cfg(
        {
            "save_ckpt_after_run": EasyDict(name="last", type="save_ckpt", priority=40, position="after_run"),
            "mine": EasyDict(name="load", type="load_ckpt", position="before_run", ext_args={"load_path": "x"}),
        }
    )
    assert names(hooks)["after_run"] == ["last"] and hooks["after_run"][0].priority == 40
    assert hooks["before_run"][0]._load_path == "x" and hooks["before_run"][0].priority == 100


def test_a_hook_is_inserted_after_those_of_equal_priority():
    hooks = build_learner_hook_by_cfg({"log_show_after_iter": 1, "log_reduce_after_iter": True})
    add_learner_hook(hooks, nothing("late", 20))
    add_learner_hook(hooks, nothing("early", 0))
    add_learner_hook(hooks, nothing("run", 5, "before_run"))
    assert names(hooks)["after_iter"] == ["early", "log_reduce_after_iter", "log_show", "late"]
    assert names(hooks)["before_run"] == ["run"]


def test_what_is_no_hook_and_tables_of_other_positions_are_refused():
    with pytest.raises(AssertionError):
        add_learner_hook({}, print)
    with pytest.raises(AssertionError):
        merge_hooks({"before_run": []}, {"after_run": []})


def test_merged_hooks_are_a_new_table_in_which_the_first_ones_go_before_their_equals():
    first = build_learner_hook_by_cfg({"log_show_after_iter": 1, "save_ckpt_after_run": True})
    second = build_learner_hook_by_cfg({"save_ckpt_after_iter": 1, "log_reduce_after_iter": True})
    merged = merge_hooks(first, second)
    assert names(merged)["after_iter"] == ["log_reduce_after_iter", "log_show", "save_ckpt_after_iter"]
    assert names(merged)["after_run"] == ["save_ckpt_after_run"]
    assert names(first)["after_iter"] == ["log_show"]


def test_only_learner_hook_classes_are_registered():
    with pytest.raises(AssertionError):
        register_learner_hook("bad", int)
    with pytest.raises(TypeError):
        register_learner_hook("bad", nothing())
    assert "bad" not in hook_mapping


def test_a_type_registered_anew_is_what_simplified_keys_build(monkeypatch):
    class OwnShow(LogShowHook):
        pass

    monkeypatch.setitem(hook_mapping, "log_show", LogShowHook)
    register_learner_hook("log_show", OwnShow)
    (hook,) = build_learner_hook_by_cfg({"log_show_after_iter": 3})["after_iter"]
    assert type(hook) is OwnShow


def test_the_mappings_name_the_built_in_hooks():
    assert hook_mapping == {
        "load_ckpt": LoadCkptHook,
        "save_ckpt": SaveCkptHook,
        "log_show": LogShowHook,
        "log_reduce": LogReduceHook,
    }
    assert set(simplified_hook_mapping) == {
        "load_ckpt_before_run",
        "log_show_after_iter",
        "save_ckpt_after_iter",
        "save_ckpt_after_run",
        "log_reduce_after_iter",
    }


def test_show_hooks_writes_the_class_names_of_each_position(capsys):
    show_hooks(build_learner_hook_by_cfg({"log_show_after_iter": 1, "save_ckpt_after_iter": 1}))
    assert capsys.readouterr().out.splitlines() == [
        "before_run: -",
        "after_run: -",
        "before_iter: -",
        "after_iter: LogShowHook, SaveCkptHook",
    ]


# The mean of the log buffer over ranks.


def engine_with(scalar, scalars=(), histogram=()):
    buffer = {kind: build_log_buffer() for kind in ("scalar", "scalars", "histogram")}
    for kind, values in (("scalar", scalar), ("scalars", scalars), ("histogram", histogram)):
        buffer[kind].update(dict(values))
    return SimpleNamespace(log_buffer=buffer)


def reduce(engine):
    LogReduceHook("log_reduce", 10, position="after_iter")(engine)
    return engine.log_buffer


def join_group(path, rank, size):
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60)
    )


@pytest.fixture
def group_of_one(tmp_path):
    join_group(tmp_path / "rendezvous", 0, 1)
    yield
    dist.destroy_process_group()


def check_normalised():
    engine = engine_with(
        {"int": 2, "np": np.float32(0.5), "noreduce_name": "x", "flag": True},
        {"lr": {"a": 1, "noreduce_b": None, "t": torch.tensor([1.0, 2.0])}},
        {"q": (1, 2), "w": np.array([[1, 2]])},
    )
    sections = dict(engine.log_buffer)
    buffer = reduce(engine)
    assert buffer == {
        "scalar": {"int": 2.0, "np": 0.5, "noreduce_name": "x", "flag": 1.0},
        "scalars": {"lr": {"a": 1.0, "noreduce_b": None, "t": [1.0, 2.0]}},
        "histogram": {"q": [1.0, 2.0], "w": [[1.0, 2.0]]},
    }
    assert type(buffer["scalar"]["int"]) is float
    assert all(buffer[kind] is section for kind, section in sections.items())
    buffer["scalar"]["later"] = torch.tensor([3.0])
    assert buffer["scalar"]["later"] == [3.0]


def test_a_single_process_keeps_its_numbers_and_its_log_buffer():
    check_normalised()


@pytest.mark.differs(
    "needs CUDA, and a call for each scalar, to reduce logs over ranks",
    "reduces all of them in one call, also on CPUs",
)
def test_a_group_on_the_cpu_needs_no_gpu(group_of_one):
    check_normalised()


@pytest.mark.parametrize("value", ["text", None, object()])
def test_what_cannot_be_averaged_is_refused_by_name(value):
    with pytest.raises(TypeError, match="scalar/loss = "):
        reduce(engine_with({"loss": value}))


def test_a_whole_buffer_takes_one_reduction(monkeypatch):
    packed = []
    monkeypatch.setattr("ding.worker.learner.learner_hook.allreduce", lambda x: packed.append(x.tolist()))
    reduce(engine_with({"a": 1.0, "b": 2.0}, histogram={"q": [4.0, 5.0]}))
    assert len(packed) == 1 and packed[0][1:6] == [1.0, 2.0, 4.0, 5.0, 0.0]


def _train_on(rank, size, path, results):
    join_group(path, rank, size)
    try:
        policy = FakePolicy({"total_loss": float(rank), "[histogram]q": [float(rank), 1.0], "noreduce_rank": rank})
        learner = BaseLearner(
            learner_cfg({"log_show_after_iter": 1}), policy, RecordingWriter() if rank == 0 else None, exp_name="exp"
        )
        learner.train([])
        written = learner.tb_logger.written if rank == 0 else None
        errors = []
        for scalar in ({"ab"[rank]: 1.0}, dict.fromkeys("abc"[: 1 + rank], 1.0)):
            try:
                reduce(engine_with(scalar))
            except RuntimeError as error:
                errors.append(str(error))
        results[rank] = (learner.rank, learner.world_size, written, errors)
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_log_their_mean_and_notice_when_their_keys_differ(tmp_path):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_train_on, (2, str(tmp_path / "rendezvous"), results), nprocs=2)
        results = dict(results)
    assert [results[rank][:2] for rank in (0, 1)] == [(0, 2), (1, 2)]
    written = results[0][2]
    assert ("scalar", "learner_iter/total_loss_avg", 0.5, 0) in written
    assert ("histogram", "learner/q", [0.5, 1.0], 0) in written
    for rank in (0, 1):
        assert len(results[rank][3]) == 2 and all("different keys" in error for error in results[rank][3])
