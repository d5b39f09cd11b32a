from types import SimpleNamespace

import pytest
from easydict import EasyDict

from ding.utils.config_helper import ConfigError
from ding.worker.coordinator.base_parallel_commander import (
    BaseCommander,
    NaiveCommander,
    TaskConfigs,
    create_parallel_commander,
    get_parallel_commander_cls,
)
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.coordinator.one_vs_one_parallel_commander import OneVsOneCommander
from ding.worker.coordinator.solo_parallel_commander import SoloCommander
from tests.worker.coordinator.fakes import main_cfg


def naive(**cfg):
    return NaiveCommander(main_cfg("naive", **cfg))


class Minimal(BaseCommander):
    """A commander of the user's, with as little as is allowed."""

    def __init__(self, **cfg):
        self._open_spaces(cfg)

    def get_collector_task(self):
        return None


def test_a_commander_needs_collector_tasks_and_nothing_else():
    with pytest.raises(TypeError):
        BaseCommander()
    commander = Minimal()
    assert commander.get_learner_task() is None
    assert commander.finish_collector_task("t", {}) is None
    assert commander.finish_learner_task("t", {"buffer_id": "b"}) == "b"
    assert commander.finish_learner_task("t", {}) is None
    assert commander.is_collector_task_useless("t") is False
    commander.update_learner_info("t", {})
    commander.update_collector_info("t", {})
    commander.close()


@pytest.mark.parametrize(("judge", "key"), [("collector", "collector_done"), ("learner", "learner_done")])
@pytest.mark.parametrize(("told", "is_done"), [({}, False), (False, False), (True, True), (1, True)])
def test_a_worker_says_itself_when_it_is_done(judge, key, told, is_done):
    info = told if isinstance(told, dict) else {key: told}
    assert getattr(Minimal(), f"judge_{judge}_finish")("t", info) is is_done


@pytest.mark.parametrize("cls", [BaseCommander, NaiveCommander, SoloCommander, OneVsOneCommander])
def test_the_default_config_is_a_fresh_copy(cls):
    cfg = cls.default_config()
    assert cfg == {
        "collector_task_space": 2 if cls is OneVsOneCommander else 1,
        "learner_task_space": 1,
        "eval_interval": 60,
        "eval_interval_env_step": None,
        "samples_per_insert": "serial",
        "insert_tolerance": None,
        "min_samples": 1,
        "cfg_type": f"{cls.__name__}Dict",
    }
    cfg.eval_interval = 1
    assert cls.config["eval_interval"] == 60


@pytest.mark.parametrize("cfg", [{"collector_task_space": -1}, {"learner_task_space": 1.5}, {"eval_interval": "often"}])
def test_the_config_is_checked(cfg):
    with pytest.raises(ConfigError, match=next(iter(cfg))):
        naive(**cfg)


def test_naive_tasks_are_numbered_from_1():
    commander = naive(collector_task_space=2)
    task = commander.get_collector_task()
    assert (task["task_id"], task["buffer_id"]) == ("collector_task_id1", "test")
    cfg = task["collector_cfg"]
    assert cfg.collect_setting.eps == 0.9 and cfg.policy_update_path == "test.pth" and cfg.eval_flag is False
    assert cfg.env.manager.episode_num == 2 and cfg.exp_name == "exp" and cfg.policy.type == "dqn_command"
    assert commander.get_collector_task()["task_id"] == "collector_task_id2"
    assert commander.get_collector_task() is None
    task = commander.get_learner_task()
    assert [task[key] for key in ("task_id", "policy_id", "buffer_id")] == ["learner_task_id1", "test.pth", "test"]
    assert commander.get_learner_task() is None


def test_a_finished_naive_task_is_counted_and_makes_room():
    commander = naive()
    commander.get_collector_task(), commander.get_learner_task()
    assert commander.finish_collector_task("collector_task_id1", {}) is None
    assert commander.finish_learner_task("learner_task_id1", {"buffer_id": "test"}) == "test"
    assert (commander._collector_task_finish_count, commander._learner_task_finish_count) == (1, 1)
    assert commander.get_collector_task()["task_id"] == "collector_task_id2"
    assert commander.get_learner_task()["task_id"] == "learner_task_id2"


def test_a_failed_naive_task_makes_room_and_is_not_counted():
    commander = naive()
    commander.notify_fail_collector_task(commander.get_collector_task())
    commander.notify_fail_learner_task(commander.get_learner_task())
    assert commander.get_collector_task() is not None and commander.get_learner_task() is not None
    assert (commander._collector_task_finish_count, commander._learner_task_finish_count) == (0, 0)


def test_collectors_that_come_and_go_change_the_space():
    commander = naive(collector_task_space=0)
    assert commander.get_collector_task() is None
    commander.increase_collector_task_space()
    assert commander.get_collector_task() is not None
    commander.decrease_collector_task_space()
    commander.notify_fail_collector_task({})
    assert commander.get_collector_task() is None


def test_naive_infos_are_kept_by_task():
    commander = naive()
    commander.update_learner_info("a", {"learner_step": 1})
    commander.update_learner_info("a", {"learner_step": 2})
    assert commander._learner_info["a"] == [{"learner_step": 1}, {"learner_step": 2}]
    assert commander._learner_info["b"] == []


@pytest.mark.parametrize(("kind", "cls"), [("naive", NaiveCommander), ("solo", SoloCommander)])
def test_commanders_are_made_by_type(kind, cls):
    commander = create_parallel_commander(main_cfg(kind, import_names=["ding.worker.coordinator"]))
    assert type(commander) is cls
    commander.close()
    assert get_parallel_commander_cls({"type": kind, "import_names": ["ding.worker.coordinator"]}) is cls
    assert get_parallel_commander_cls(EasyDict(type=kind)) is cls


def test_an_unknown_type_is_a_key_error():
    with pytest.raises(KeyError):
        create_parallel_commander(main_cfg("emperor"))
    with pytest.raises(KeyError):
        get_parallel_commander_cls({"type": "emperor"})


def test_modules_named_by_the_config_are_imported_first():
    with pytest.raises(ImportError):
        create_parallel_commander(main_cfg("naive", import_names=["no_such_module"]))
    with pytest.raises(ImportError):
        get_parallel_commander_cls({"type": "naive", "import_names": ["no_such_module"]})


# The commander of a serial pipeline.


class EchoPolicy:
    def get_setting_collect(self, info):
        return {"seen": info}


def commander(policy=None, cfg=None):
    learner = SimpleNamespace(learn_info={"learner_step": 3, "priority_info": {}, "learner_done": False})
    return BaseSerialCommander(cfg or EasyDict(), learner, SimpleNamespace(envstep=640), None, None, policy)


def test_the_default_config_is_its_type_alone():
    assert BaseSerialCommander.default_config() == {"cfg_type": "BaseSerialCommanderDict"}


def test_step_gives_what_the_policy_makes_of_learn_info_and_env_step():
    own = commander(EchoPolicy(), BaseSerialCommander.default_config())
    assert own.step() == {
        "seen": {"learner_step": 3, "priority_info": {}, "learner_done": False, "envstep": 640},
    }
    assert "envstep" not in own._learner.learn_info


def test_the_policy_may_come_later():
    own = commander()
    assert own.policy is None
    with pytest.raises(AssertionError, match="no policy"):
        own.step()
    own.policy = EchoPolicy()
    assert own.step()["seen"]["envstep"] == 640


@pytest.mark.parametrize(("is_eval", "episodes"), [(False, 2), (True, 3)])
def test_a_collector_cfg_has_what_a_collector_needs(is_eval, episodes):
    cfg = main_cfg()
    forms = TaskConfigs(cfg)
    collector_cfg = forms.collector_cfg(is_eval, {"eps": 0.5}, forms.policy_cfg(), "weights")
    assert collector_cfg == {
        "type": "zergling",
        "print_freq": 5,
        "collect_setting": {"eps": 0.5},
        "eval_flag": is_eval,
        "policy": cfg.policy,
        "policy_update_path": "weights",
        "env": {"type": "some", "manager": {"episode_num": episodes}, "stop_value": 9},
        "exp_name": "exp",
    }
    assert collector_cfg.collect_setting.eps == 0.5


@pytest.mark.parametrize("limit", [7, None])
def test_an_evaluating_collector_is_told_the_step_limit_of_the_evaluator_section(limit):
    cfg = main_cfg()
    cfg.policy.eval = {"evaluator": {"max_episode_steps": limit}}
    forms = TaskConfigs(cfg)
    assert forms.collector_cfg(True, {}, forms.policy_cfg(), "weights").max_episode_steps == limit
    assert "max_episode_steps" not in forms.collector_cfg(False, {}, forms.policy_cfg(), "weights")


def test_a_learner_task_has_what_a_learner_and_its_buffer_need():
    cfg = main_cfg()
    task = TaskConfigs(cfg).learner_task("t", "weights", "buffer")
    assert task == {
        "task_id": "t",
        "policy_id": "weights",
        "buffer_id": "buffer",
        "learner_cfg": {"train_iterations": 6, "exp_name": "exp"},
        "replay_buffer_cfg": {"type": "advanced", "replay_buffer_size": 100},
        "policy": cfg.policy,
    }


def test_tasks_share_nothing_with_the_config():
    cfg = main_cfg()
    forms = TaskConfigs(cfg)
    task = forms.learner_task("t", "p", "b")
    task["policy"].learn.batch_size = task["learner_cfg"].train_iterations = 77
    task["replay_buffer_cfg"].type = "naive"
    forms.collector_cfg(False, {}, {}, "p").type = "other"
    assert cfg == main_cfg()
    assert forms.learner_task("t", "p", "b")["policy"].learn.batch_size == 2


@pytest.mark.parametrize("key", ["collector_episode_num", "evaluator_episode_num"])
@pytest.mark.parametrize("value", [None, 0, True, "2"])
def test_the_number_of_episodes_of_a_task_is_needed(key, value):
    cfg = main_cfg()
    cfg.env[key] = value
    with pytest.raises(ConfigError, match=rf"env\.{key} = {value!r} is not allowed; .* each env plays"):
        TaskConfigs(cfg)
