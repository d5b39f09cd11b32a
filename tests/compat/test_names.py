"""The names that public programs import are there, also those of earlier releases."""

import importlib

import pytest
import torch

from tests.compat.names import NOT_HERE, imported_names

NAMES = imported_names()


def is_there(module: str, name: str) -> bool:
    try:
        if hasattr(importlib.import_module(module), name or "__name__"):
            return True
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.guarantees("interfaces")
def test_programs_find_what_they_import():
    missing = {key for key in NAMES if not is_there(*key)}
    assert missing == NOT_HERE
    assert sum(NAMES.values()) == 779
    assert sum(count for key, count in NAMES.items() if key not in missing) / 779 >= 0.985


def test_wrappers_of_earlier_names_are_those_of_today():
    from ding.envs import EvalEpisodeReturnEnv, EvalEpisodeReturnWrapper, FinalEvalRewardEnv

    assert EvalEpisodeReturnEnv is FinalEvalRewardEnv is EvalEpisodeReturnWrapper


@pytest.mark.parametrize("name", ["EvalEpisodeReturnEnv", "FinalEvalRewardEnv", "final_eval_reward"])
@pytest.mark.parametrize("as_dict", [False, True])
def test_env_wrappers_of_a_config_may_have_earlier_names(name, as_dict):
    from ding.envs import DingEnvWrapper

    entry = {"type": name} if as_dict else name
    env = DingEnvWrapper(cfg={"env_id": "CartPole-v1", "env_wrapper": [entry]})
    env.seed(0, dynamic_seed=False)
    env.reset()
    timestep = env.step(0)
    while not timestep.done:
        timestep = env.step(0)
    env.close()
    assert timestep.info["eval_episode_return"].tolist() == [9.0]


def test_battle_collector_and_evaluator_have_their_earlier_names():
    from ding.utils import SERIAL_COLLECTOR_REGISTRY, SERIAL_EVALUATOR_REGISTRY
    from ding.worker import Episode1v1Collector, OnevOneEvaluator

    assert SERIAL_COLLECTOR_REGISTRY.get("episode_1v1") is Episode1v1Collector
    assert SERIAL_EVALUATOR_REGISTRY.get("battle_interaction") is OnevOneEvaluator


@pytest.mark.parametrize("keyword", ["action_space", "actor_head_type"])
def test_the_earlier_qac_is_today_s_of_real_valued_actions(keyword):
    from ding.model import QAC, ContinuousQAC
    from ding.model.common.model_factory import create_model

    torch.manual_seed(0)
    model = create_model({"type": "qac", "obs_shape": 3, "action_shape": 2, keyword: "regression"})
    torch.manual_seed(0)
    today = ContinuousQAC(3, 2, "regression")
    obs = torch.rand(4, 3)
    assert isinstance(model, QAC)
    assert model.state_dict().keys() == today.state_dict().keys()
    assert torch.equal(model(obs, "compute_actor")["action"], today(obs, "compute_actor")["action"])


def test_the_earlier_qac_of_images_has_an_encoder_for_them():
    from ding.model.template.qac import QACPixel

    model = QACPixel(obs_shape=(3, 48, 48), action_shape=2, actor_head_type="reparameterization", twin_critic=True)
    obs = torch.zeros(2, 3, 48, 48)
    mean, deviation = model(obs, mode="compute_actor")["logit"]
    assert mean.shape == deviation.shape == (2, 2)
    q_value = model({"obs": obs, "action": mean}, mode="compute_critic")["q_value"]
    assert [q.shape for q in q_value] == [(2,), (2,)]


def test_a_sequence_is_a_list_or_a_tuple():
    from ding.torch_utils.network.rnn import is_sequence

    values = ([1], (1,), "ab", b"ab", {1: 2}, torch.ones(2), range(2), None)
    assert [is_sequence(value) for value in values] == [True, True, *[False] * 6]


def test_flatten_keeps_the_first_axis_unless_told_otherwise():
    from ding.torch_utils import Flatten

    x = torch.zeros(2, 3, 4)
    assert [Flatten()(x).shape, Flatten(0)(x).shape, Flatten(1, -2)(x).shape] == [(2, 12), (24,), (2, 3, 4)]
