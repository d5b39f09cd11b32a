import pytest

from ding.utils.config_helper import ConfigError
from ding.worker.coordinator.base_parallel_commander import TaskConfigs
from tests.worker.coordinator.fakes import main_cfg


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
