"""What a class that implements only the abstract methods of a parallel collector gets."""

import numpy as np
import pytest
import torch
from easydict import EasyDict

from ding.worker.collector import BaseParallelCollector
from tests.fakes import FakeManager


class Plain(BaseParallelCollector):
    """As others write them: it acts, keeps the timesteps, and stops with its envs."""

    config = {"print_freq": 5}

    def __init__(self, cfg, manager=None):
        self.log = []
        self.timesteps = []
        super().__init__(cfg)
        self.env_manager = manager or FakeManager([2, 3], episode_num=1, reuse=True)
        self.env_manager.launch()

    def get_finish_info(self):
        return {"steps": len(self.timesteps)}

    def __repr__(self):
        return "Plain"

    def _update_policy(self):
        self.log.append("update")

    def _start_thread(self):
        self.log.append("start thread")

    def _join_thread(self):
        self.log.append("join thread")

    def _policy_inference(self, obs):
        self.obs = obs
        self.log.append(("infer", sorted(obs)))
        return {env_id: torch.tensor([env_id]) for env_id in obs}

    def _env_step(self, actions):
        self.log.append(("step", {env_id: action.tolist() for env_id, action in actions.items()}))
        self.action_types = {type(action) for action in actions.values()}
        return self.env_manager.step(actions)

    def _process_timestep(self, timestep):
        self.log.append(("process", sorted(timestep)))
        self.timesteps.append(timestep)

    def _iter_after_hook(self):
        self.log.append("after")
        super()._iter_after_hook()


def cfg(**changes):
    return EasyDict({"eval_flag": False, "exp_name": "exp", "print_freq": 2, **changes})


def test_the_steps_of_a_round_are_called_in_order():
    collector = Plain(cfg())
    collector.start()
    both, one = (["infer", [0, 1]], ["step", {0: [0], 1: [1]}]), (["infer", [1]], ["step", {1: [1]}])
    rounds = [[*map(tuple, acts), ("process", acts[0][1]), "after"] for acts in (both, both, one)]
    assert collector.log == ["update", "start thread", *rounds[0], *rounds[1], *rounds[2], "join thread"]
    assert collector.get_finish_info() == {"steps": 3} and [len(steps) for steps in collector.timesteps] == [2, 2, 1]
    assert collector.progress() == {}  # what is not counted is not told


def test_timesteps_and_observations_are_float32_tensors_and_actions_arrays():
    collector = Plain(cfg())
    collector.start()
    assert collector.action_types == {np.ndarray}
    assert {obs.dtype for obs in collector.obs.values()} == {torch.float32}
    last = collector.timesteps[-1][1]
    assert (last.obs.tolist(), last.reward.tolist(), last.done) == ([1, 0, 3], [1], True)
    assert {last.obs.dtype, last.reward.dtype} == {torch.float32}
    assert last.info["eval_episode_return"] == 3


def test_an_env_may_write_into_the_arrays_of_timesteps_that_were_kept():
    collector = Plain(cfg())
    collector.start()
    assert [{i: step.obs.tolist() for i, step in steps.items()} for steps in collector.timesteps] == [
        {0: [0, 0, 1], 1: [1, 0, 1]},
        {0: [0, 0, 2], 1: [1, 0, 2]},
        {1: [1, 0, 3]},
    ]


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "inf")])
def test_nan_and_infinity_are_refused(value, name):
    def after_step(timesteps):
        timesteps[1].reward[:] = value
        return timesteps

    with pytest.raises(FloatingPointError, match=f"the reward of env 1 holds {name} .*step 1 of its episode"):
        Plain(cfg(), FakeManager([2, 3], after_step=after_step)).start()


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_nan_of_the_inference_is_reported_as_that_of_the_policy(make):
    class Ruined(Plain):
        def _policy_inference(self, obs):
            return {env_id: make([float("nan") if env_id == 1 else 0.0]) for env_id in obs}

    with pytest.raises(FloatingPointError):
        Ruined(cfg()).start()


def test_a_closed_collector_does_not_even_ask_for_weights():
    collector = Plain(cfg())
    collector.close()
    collector.log.clear()
    collector.start()
    assert collector.log == ["join thread"]


def test_a_failure_joins_the_threads_and_lets_close_return():
    class Failing(Plain):
        def _update_policy(self):
            raise ConnectionError("no weights")

    collector = Failing(cfg())
    with pytest.raises(ConnectionError):
        collector.start()
    assert collector.log == ["join thread"]
    collector.close()


def test_policy_and_env_manager_are_properties():
    collector = Plain(cfg())
    collector.policy = ["policy"]
    assert collector.policy == ["policy"]
    assert isinstance(collector.env_manager, FakeManager)


def test_the_default_config_is_a_copy_that_names_the_class():
    first = Plain.default_config()
    first.print_freq = 0
    assert Plain.default_config() == {"print_freq": 5, "cfg_type": "PlainDict"}
