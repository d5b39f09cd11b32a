import copy
import os
import subprocess

import pytest
from easydict import EasyDict

from ding.config.config import compile_config
from ding.config.read import read_config, read_config_directly
from ding.utils.config_helper import ConfigError
from ding.worker.collector.interaction_serial_evaluator import InteractionSerialEvaluator
from ding.worker.learner.base_learner import BaseLearner
from tests.config.fakes import (
    FakeBuffer,
    FakeCollector,
    FakeEnv,
    FakeManager,
    FakePolicy,
    FakeRewardModel,
    FakeSmallBuffer,
    FakeWorldModel,
)

FAKES = ["tests.config.fakes"]
INF = float("inf")


def main_cfg(**kwargs):
    return EasyDict(
        exp_name="exp", env={"stop_value": 195, "n_evaluator_episode": 5}, policy={"model": {"obs_shape": 4}}, **kwargs
    )


def create_cfg(**kwargs):
    return EasyDict(
        {
            "env": {"type": "config_fake_env", "import_names": FAKES},
            "env_manager": {"type": "config_fake_manager"},
            "policy": {"type": "config_fake"},
            "collector": {"type": "config_fake_collector"},
            "replay_buffer": {"type": "config_fake_buffer"},
            **kwargs,
        }
    )


def without(*entries):
    """`create_cfg()` without these entries."""
    create = create_cfg()
    for entry in entries:
        create.pop(entry)
    return create


def compiled(main=None, create=None, **kwargs):
    kwargs.setdefault("save_cfg", False)
    return compile_config(main or main_cfg(), auto=True, create_cfg=create or create_cfg(), **kwargs)


def recompiled(path, seed):
    main, create = read_config(path)
    return compile_config(main, auto=True, create_cfg=create, seed=seed, save_cfg=False)


def test_the_compiled_tree_has_defaults_create_types_and_user_values():
    cfg = compiled(seed=3)
    assert cfg.env == {
        "manager": {"episode_num": 3, "max_retry": 1, "type": "config_fake_manager", "cfg_type": "FakeManagerDict"},
        "stop_value": 195,
        "n_evaluator_episode": 5,
        "length": 7,
        "cfg_type": "FakeEnvDict",
        "type": "config_fake_env",
        "import_names": FAKES,
    }
    policy = cfg.policy
    assert policy.model == {"obs_shape": 4}
    assert policy.learn == {
        "learner": BaseLearner.default_config(),
        "batch_size": 32,
        "resume_training": False,
    }
    assert policy.collect == {
        "collector": {"print_freq": 10, "depth": 1, "cfg_type": "FakeCollectorDict", "type": "config_fake_collector"},
        "n_sample": 8,
    }
    evaluator = InteractionSerialEvaluator.default_config()
    evaluator.update(stop_value=195, n_episode=5)
    assert policy.eval == {"evaluator": evaluator}
    assert policy.other == {
        "replay_buffer": {
            "replay_buffer_size": 500,
            "alpha": 0.6,
            "max_use": INF,
            "cfg_type": "FakeBufferDict",
            "type": "config_fake_buffer",
        },
        "eps": {"start": 0.95, "decay": 10000},
        "commander": {"cfg_type": "BaseSerialCommanderDict"},
    }
    assert (policy.type, policy.cfg_type, policy.cuda) == ("config_fake", "FakePolicyDict", False)
    assert (cfg.seed, cfg.exp_name) == (3, "exp")
    assert set(cfg) == {"env", "policy", "seed", "exp_name"}


def test_user_values_win_everywhere():
    user = EasyDict(
        env={"manager": {"max_retry": 9}, "length": 8},
        policy={
            "learn": {"batch_size": 1, "learner": {"train_iterations": 4}},
            "collect": {"collector": {"depth": 5, "type": "other"}},
            "eval": {"evaluator": {"eval_freq": 2}},
            "other": {"replay_buffer": {"alpha": 0}},
        },
        extra={"a": 1},
    )
    cfg = compiled(user)
    assert cfg.env.manager.max_retry == 9 and cfg.env.length == 8
    assert cfg.policy.learn.batch_size == 1 and cfg.policy.learn.learner.train_iterations == 4
    assert cfg.policy.collect.collector == {
        "print_freq": 10,
        "depth": 5,
        "cfg_type": "FakeCollectorDict",
        "type": "other",
    }
    assert cfg.policy.eval.evaluator.eval_freq == 2
    assert cfg.policy.other.replay_buffer.alpha == 0
    assert cfg.extra == {"a": 1}


def test_the_inputs_are_not_changed():
    main, create = main_cfg(), create_cfg()
    before = copy.deepcopy((main, create))
    create.pop("collector")
    before[1].pop("collector")
    compiled(main, create, save_cfg=True)
    assert (main, create) == before


@pytest.mark.differs("fails on configs that are plain dicts", "converts them")
def test_plain_dicts_are_converted():
    main, create = dict(main_cfg()), dict(create_cfg())
    assert compiled(main, create) == compiled()


def test_the_seed_argument_overwrites_the_users():
    assert compiled(main_cfg(seed=9)).seed == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: compile_config([1], auto=True, save_cfg=False), TypeError, "must be an EasyDict or a dict"),
        (lambda: compiled(create="x"), TypeError, "must be an EasyDict or a dict"),
        (lambda: compile_config(main_cfg(), auto=True, save_cfg=False), AssertionError, "auto=True"),
        (lambda: compile_config(main_cfg(), save_cfg=False), ValueError, "policy="),
        (lambda: compiled(create=without("env_manager")), ValueError, "create_config.env_manager"),
        (lambda: compiled(create=without("policy")), ValueError, "create_config.policy"),
        (lambda: compiled(create=create_cfg(policy={"import_names": FAKES})), AssertionError, "must name a type"),
    ],
)
def test_what_is_missing_or_no_config_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    "name", ["env", "env_manager", "policy", "collector", "replay_buffer", "evaluator", "reward_model"]
)
def test_an_unknown_type_names_the_section_and_what_is_registered(name):
    with pytest.raises(KeyError, match=rf"{name}.*unknown type 'absent'; registered: .*fake") as e:
        compiled(create=create_cfg(**{name: {"type": "absent", "import_names": FAKES}}))
    assert "import_names" in str(e.value)


def test_collector_and_buffer_default_to_sample_and_advanced():
    create = without("collector", "replay_buffer")
    cfg = compiled(create=create)
    assert cfg.policy.collect.collector.type == "sample"
    assert cfg.policy.collect.collector.cfg_type == "SampleSerialCollectorDict"
    assert cfg.policy.other.replay_buffer.type == "advanced"
    assert cfg.policy.other.replay_buffer.cfg_type == "AdvancedReplayBufferDict"
    assert cfg.policy.other.replay_buffer.replay_buffer_size == 500


@pytest.mark.guarantees("resume")
def test_collector_and_buffer_that_the_main_config_names_bring_their_own_keys_and_compile_again():
    create = without("collector", "replay_buffer")
    main = main_cfg()
    main.policy.update(collect={"collector": {"type": "episode"}}, other={"replay_buffer": {"type": "deque"}})
    cfg = compiled(main, create, save_cfg=True, strict_config=True)
    assert cfg.policy.collect.collector.cfg_type == "EpisodeSerialCollectorDict"
    assert cfg.policy.other.replay_buffer.cfg_type == "DequeBufferWrapperDict"
    main, again = read_config("exp/total_config.py")
    assert compile_config(main, auto=True, create_cfg=again, save_cfg=False, strict_config=True) == cfg


def test_envs_built_by_hand_get_a_marker_type_that_recompiles():
    create = create_cfg(policy={"type": "config_fake", "import_names": FAKES})
    create.pop("env")
    cfg = compiled(create=create, save_cfg=True)
    assert cfg.env.type == "ding_env_wrapper_generated"
    assert "length" not in cfg.env
    assert recompiled("exp/formatted_total_config.py", 0) == cfg


def test_classes_given_as_arguments_win_over_types():
    cfg = compiled(
        create=create_cfg(env={"type": "absent"}, policy={"type": "absent"}, env_manager={"type": "absent"}),
        env=FakeEnv,
        policy=FakePolicy,
        env_manager=FakeManager,
    )
    assert cfg.env.cfg_type == "FakeEnvDict" and cfg.policy.cfg_type == "FakePolicyDict"


def test_a_function_may_stand_for_the_env():
    cfg = compiled(env=lambda cfg: None)
    assert "length" not in cfg.env and cfg.env.type == "config_fake_env"


def test_without_auto_the_classes_give_the_defaults():
    cfg = compile_config(
        main_cfg(),
        FakeManager,
        FakePolicy,
        BaseLearner,
        FakeCollector,
        InteractionSerialEvaluator,
        FakeBuffer,
        save_cfg=False,
    )
    assert cfg.env.manager == {
        "episode_num": INF,
        "max_retry": 1,
        "type": "config_fake_manager",
        "cfg_type": "FakeManagerDict",
    }
    assert cfg.policy.collect.collector == {"print_freq": 10, "depth": 1, "cfg_type": "FakeCollectorDict"}
    assert cfg.policy.other.replay_buffer.cfg_type == "FakeBufferDict"
    assert "commander" not in cfg.policy.other
    assert cfg.policy.eval.evaluator.n_episode == 5


def test_without_auto_the_env_manager_defaults_to_the_base_one():
    cfg = compile_config(main_cfg(), policy=FakePolicy, save_cfg=False)
    assert cfg.env.manager.cfg_type == "BaseEnvManagerDict"
    assert cfg.policy.collect.collector == {}
    assert cfg.policy.other.replay_buffer == {"replay_buffer_size": 500}


@pytest.mark.differs(
    "ignores `create_config.evaluator.type`, and gives subclasses of evaluators no stop value or number of episodes",
    "uses it to select the class and its defaults",
)
def test_the_evaluator_class_comes_from_the_create_config_and_gets_the_stop_value():
    create = create_cfg(evaluator={"type": "config_fake_trading", "import_names": FAKES})
    cfg = compiled(create=create)
    assert cfg.policy.eval.evaluator == {
        "eval_freq": 77,
        "fee": 0.1,
        "cfg_type": "FakeTradingEvaluatorDict",
        "type": "config_fake_trading",
        "import_names": FAKES,
        "stop_value": 195,
        "n_episode": 5,
    }


def test_the_env_section_decides_over_values_under_evaluator():
    user = EasyDict(policy={"eval": {"evaluator": {"stop_value": 1, "n_episode": 2}}})
    evaluator = compiled(user).policy.eval.evaluator
    assert (evaluator.stop_value, evaluator.n_episode) == (10000000000, 4)


def test_the_unroll_length_is_copied_to_collect():
    assert compiled(EasyDict(policy={"unroll_len": 6})).policy.collect.unroll_len == 6


def multi_create(**kwargs):
    return create_cfg(policy={"type": "config_fake_multi", "import_names": FAKES}, **kwargs)


def test_several_buffers_get_defaults_policy_values_and_user_values_by_name():
    user = EasyDict(
        policy={"other": {"replay_buffer": {"multi_buffer": True, "value": {"alpha": 0.1, "replay_buffer_size": 7}}}}
    )
    buffers = compiled(user, multi_create()).policy.other.replay_buffer
    shared = {"max_use": INF, "cfg_type": "FakeBufferDict", "type": "config_fake_buffer"}
    assert buffers == {
        "multi_buffer": True,
        "policy": {"replay_buffer_size": 100, "alpha": 0.6, "name": "policy", **shared},
        "value": {"replay_buffer_size": 7, "alpha": 0.1, "name": "value", **shared},
    }


def test_several_buffers_may_differ_in_class():
    create = multi_create(
        replay_buffer={"policy": {"type": "config_fake_buffer"}, "value": {"type": "config_fake_small_buffer"}}
    )
    buffers = compiled(create=create).policy.other.replay_buffer
    assert buffers.policy.cfg_type == "FakeBufferDict" and buffers.value.cfg_type == "FakeSmallBufferDict"
    assert "alpha" not in buffers.value
    buffers = compiled(
        create=create, buffer={"policy": FakeSmallBuffer, "value": FakeBuffer}
    ).policy.other.replay_buffer
    assert buffers.policy.cfg_type == "FakeSmallBufferDict" and buffers.value.cfg_type == "FakeBufferDict"


def test_reward_and_world_model_sections_come_from_their_classes():
    create = create_cfg(
        reward_model={"type": "config_fake_reward"}, world_model={"type": "config_fake_world", "import_names": FAKES}
    )
    cfg = compiled(main_cfg(reward_model={"hidden": 3}), create)
    assert cfg.reward_model == {"type": "config_fake_reward", "hidden": 3, "cfg_type": "FakeRewardModelDict"}
    assert cfg.world_model == {
        "type": "config_fake_world",
        "horizon": 5,
        "cfg_type": "FakeWorldModelDict",
        "import_names": FAKES,
    }
    cfg = compile_config(
        main_cfg(), policy=FakePolicy, reward_model=FakeRewardModel, world_model=FakeWorldModel, save_cfg=False
    )
    assert cfg.reward_model.hidden == 64 and cfg.world_model.horizon == 5


RICH = {
    "exp_name": "exp",
    "env": {"stop_value": INF, "n_evaluator_episode": 5, "name": "it's"},
    "policy": {"other": {"eps": {"start": 0.5, "decay": 17}, "replay_buffer": {"alpha": INF}}},
    "reward_model": {"hidden": 1, "range": (0, INF)},
    "bco": {"alpha": 0.8},
}


@pytest.mark.differs(
    "loses eps, seed, reward model and types of collector and buffer in the formatted config",
    "writes a config that compiles to the same tree; `total_config.py` can be trained again, too",
)
@pytest.mark.parametrize(
    "create",
    [
        create_cfg(),
        create_cfg(collector={"type": "sample"}, replay_buffer={"type": "config_fake_small_buffer"}),
        create_cfg(policy={"type": "config_fake_command"}),
        create_cfg(
            evaluator={"type": "config_fake_trading"},
            reward_model={"type": "config_fake_reward", "import_names": FAKES},
        ),
        create_cfg(world_model={"type": "config_fake_world"}),
        multi_create(),
        multi_create(
            replay_buffer={"policy": {"type": "config_fake_buffer"}, "value": {"type": "config_fake_small_buffer"}}
        ),
    ],
)
def test_the_formatted_pair_compiles_to_the_same_tree(create):
    cfg = compiled(EasyDict(copy.deepcopy(RICH)), create, seed=5, save_cfg=True)
    main, again = read_config("exp/formatted_total_config.py")
    if create.policy.type == "config_fake_command":
        assert again.policy.type == "config_fake"
        again.policy.type = "config_fake_command"
    assert compile_config(main, auto=True, create_cfg=again, seed=5, save_cfg=False) == cfg
    assert main.seed == 5
    assert main.policy.other.eps == {"start": 0.5, "decay": 17}


def test_total_config_is_read_back_as_the_whole_tree():
    cfg = compiled(EasyDict(copy.deepcopy(RICH)), save_cfg=True)
    assert EasyDict(read_config_directly("exp/total_config.py")["exp_config"]) == cfg


def test_the_experiment_name_defaults_and_is_renewed():
    main = main_cfg()
    main.pop("exp_name")
    first, second = (compiled(main, save_cfg=True).exp_name for _ in range(2))
    assert first == "default_experiment" and second.startswith("default_experiment_")
    assert os.path.isfile(f"{second}/total_config.py")
    assert read_config(f"{second}/formatted_total_config.py")[0].exp_name == second


def test_without_renewal_the_files_are_replaced():
    for n in (1, 2):
        cfg = compiled(main_cfg(n=n), save_cfg=True, renew_dir=False, save_path="eval_config.py")
    assert cfg.exp_name == "exp"
    assert read_config_directly("exp/eval_config.py")["exp_config"]["n"] == 2
    written = ["eval_config.json", "eval_config.py"]
    assert sorted(os.listdir("exp")) == [*written, *(f"formatted_{name}" for name in written)]


def test_all_keys_of_the_create_config_reach_their_sections():
    create = create_cfg(
        env={"type": "config_fake_env", "import_names": FAKES, "length": 8},
        policy={"type": "config_fake", "cuda": True, "import_names": FAKES, "sizes": [1]},
        evaluator={"type": "config_fake_trading", "fee": 0.2},
    )
    cfg = compiled(create=create)
    assert (cfg.env.length, cfg.policy.cuda, cfg.policy.eval.evaluator.fee) == (8, True, 0.2)
    assert cfg.policy.import_names == FAKES
    cfg.policy.sizes.append(2)
    assert create.policy.sizes == [1]


def test_the_state_of_the_project_is_saved_with_the_config():
    subprocess.run(["git", "init", "--quiet", "."], check=True)
    compiled(save_cfg=True)
    assert {"git_diff.txt", "git_log.txt"} < set(os.listdir("exp"))


def test_nothing_is_written_without_save_cfg():
    compiled()
    assert os.listdir() == []


def test_an_entry_of_the_create_config_that_is_none_is_as_one_that_is_missing():
    given = create_cfg(collector=None, evaluator=None)
    assert compiled(create=given) == compiled(create={key: entry for key, entry in given.items() if entry is not None})
    assert given.collector is None
    with pytest.raises(ConfigError, match="create_config.policy is missing; the config has "):
        compiled(create=create_cfg(policy=None))
