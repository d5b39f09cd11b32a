"""What every manager of single envs does, whether they are in this process or in processes of their own."""

import copy
import pickle

import numpy as np
import pytest

from ding.envs import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    BaseEnvTimestep,
    SyncSubprocessEnvManager,
    create_env_manager,
)
from ding.envs.env_manager import ManagerStateError, UnknownEnvError
from ding.utils.config_helper import ConfigError
from tests.envs.env_manager.scripted_env import Make, Once, Raise, ScriptedEnv, Touch, states

MANAGERS = {
    "base": BaseEnvManager,
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
}
CFG = {"context": "fork", "step_wait_timeout": None, "retry_waiting_time": 0}


@pytest.fixture(params=MANAGERS)
def cls(request):
    return MANAGERS[request.param]


@pytest.fixture
def make(cls):
    """Makes a manager over scripted envs."""
    managers = []

    def make(*envs, **cfg):
        managers.append(cls([Make(i, **env) for i, env in enumerate(envs)], {**CFG, **cfg}))
        return managers[-1]

    yield make
    for manager in managers:
        manager.close()


def act(manager, *env_ids):
    return manager.step({env_id: np.array([env_id]) for env_id in env_ids or manager.ready_obs_id})


def shown(manager, count):
    """What so many envs show, once they wait for an action."""
    while len(manager.ready_obs_id) < count:
        assert manager.wait_another()
    return {env_id: obs.tolist() for env_id, obs in manager.ready_obs.items()}


def test_a_config_is_checked_at_construction(cls):
    for key, value in (("max_retry", -1), ("auto_reset", 1)):
        with pytest.raises(ConfigError, match=key):
            cls([Make(0)], {key: value})
    if cls is not BaseEnvManager:
        with pytest.raises(ConfigError):
            cls([Make(0)], {"wait_num": 0})


@pytest.mark.parametrize("name", MANAGERS)
def test_a_config_names_them_by_their_type_after_its_imports(name):
    cfg = {"type": name}
    assert type(create_env_manager(cfg, [Make(0)])) is MANAGERS[name] and cfg == {"type": name}
    with pytest.raises(ModuleNotFoundError):
        create_env_manager({**cfg, "import_names": ["no_such_module"]}, [Make(0)])
    for wrong in ({}, {"type": "nowhere"}):
        with pytest.raises(KeyError):
            create_env_manager(wrong, [Make(0)])


def test_states_from_launch_to_close(make):
    manager = make({"length": 1}, {"length": 2}, episode_num=1)
    assert (states(manager), manager.closed, manager.ready_obs, manager.ready_obs_id) == (["VOID"] * 2, True, {}, [])
    manager.launch()
    assert states(manager) == ["RUN"] * 2 and shown(manager, 2) == {0: [0, 0, 0], 1: [1, 0, 0]}
    timestep = act(manager)[0]
    assert type(timestep) is BaseEnvTimestep
    assert (timestep.done, timestep.obs.tolist(), timestep.reward.tolist()) == (True, [0, 0, 1], [1])
    assert states(manager) == ["DONE", "RUN"] and shown(manager, 1) == {1: [1, 0, 1]}
    assert (manager.env_state_done(0), manager.env_state_done(1), manager.done) == (True, False, False)
    act(manager)
    assert manager.done and (manager.ready_obs, manager.ready_obs_id, manager.ready_imgs) == ({}, [], {})
    manager.close()
    assert (states(manager), manager.closed, manager.ready_imgs) == (["VOID"] * 2, True, {})


@pytest.mark.parametrize("reuse", [False, True])
def test_an_episode_that_ends_returns_its_last_observation_and_begins_the_next(make, reuse):
    manager = make({"length": 2, "reuse": reuse}, {"length": 2, "reuse": reuse})
    manager.launch()
    act(manager)
    timesteps = act(manager)
    assert {i: (t.done, t.obs.tolist()) for i, t in timesteps.items()} == {0: (True, [0, 0, 2]), 1: (True, [1, 0, 2])}
    assert shown(manager, 2) == {0: [0, 1, 0], 1: [1, 1, 0]}
    assert {i: t.obs.tolist() for i, t in timesteps.items()} == {0: [0, 0, 2], 1: [1, 0, 2]}


def test_without_auto_reset_an_env_waits_for_its_reset_and_its_episodes_count(make):
    manager = make({"length": 1}, {"length": 5}, auto_reset=False, episode_num=2)
    manager.launch()
    act(manager)
    assert states(manager) == ["NEED_RESET", "RUN"] and manager.ready_obs_id == [1]
    manager.reset({0: None})
    assert shown(manager, 2) == {0: [0, 1, 0], 1: [1, 0, 1]}
    act(manager)
    assert states(manager) == ["DONE", "RUN"]


def test_only_the_envs_with_an_action_are_stepped(make):
    manager = make({}, {}, {})
    manager.launch()
    timesteps = manager.step({2: "c", 0: "a"})
    assert list(timesteps) == [2, 0] or isinstance(manager, AsyncSubprocessEnvManager) and timesteps.keys() == {0, 2}
    assert manager.actions == [["a"], [], ["c"]]


def test_done_may_be_an_array_with_a_flag_for_each_player(cls):
    class Duel(ScriptedEnv):
        def step(self, action):
            return super().step(action)._replace(done=np.array([True, self.count >= 2]), info=[{}, {}])

    with cls([Duel], {"episode_num": 1, **CFG}) as manager:
        manager.launch()
        assert act(manager)[0].done.tolist() == [True, False] and states(manager) == ["RUN"]
        act(manager)
        assert states(manager) == ["DONE"]


def test_reset_parameters_stay_in_force_until_the_next_launch(make):
    manager = make({"length": 1}, {"length": 1})
    manager.launch({0: {"level": 1}, 1: None})
    act(manager)
    manager.reset({1: {"level": 2}})
    shown(manager, 2)
    act(manager)
    manager.reset()
    assert manager.told == [[{"level": 1}] * 4, [{}, {}, {"level": 2}, {"level": 2}, {"level": 2}]]
    manager.close()
    manager.launch()
    assert manager.told == [[{}], [{}]]


def test_a_closed_manager_says_so_and_an_open_one_is_not_launched_again(make):
    manager = make({}, {})
    calls = [
        manager.reset,
        lambda: manager.step({0: 0}),
        lambda: manager.step({}),
        lambda: manager.length,
        lambda: manager.enable_save_figure(0, "f"),
        lambda: manager.reward_shaping(0, []),
    ]
    for call in calls:
        with pytest.raises(ManagerStateError):
            call()
    with pytest.raises(AssertionError):
        manager.launch({0: {}})
    manager.launch()
    with pytest.raises(ManagerStateError):
        manager.launch()


def test_unknown_env_ids_are_named_before_any_env_is_touched(make):
    manager = make({}, {})
    manager.launch()
    for error in (UnknownEnvError, KeyError, RuntimeError):
        with pytest.raises(error) as caught:
            manager.step({0: 0, 2: 0})
        assert str(caught.value) == "there are no envs [2]; the env ids are 0 to 1"
    with pytest.raises(RuntimeError):
        manager.reset({0: {"level": 1}, 7: None})
    assert (manager.actions, manager.told) == ([[], []], [[{}], [{}]]) and len(states(manager)) == 2


def test_close_is_idempotent_and_a_launch_may_follow(make):
    manager = make({"length": 1}, episode_num=1)
    manager.close()
    for _ in range(2):
        manager.launch()
        act(manager)
        assert manager.done
        manager.close()
        manager.close()
    with manager:
        manager.launch()
    assert manager.closed


@pytest.mark.differs(
    "forgets the seeds of envs when a manager is launched again or an env recreated, and overwrites a list "
    "that is passed to `seed`",
    "remembers them, and copies the list",
)
def test_envs_are_told_seed_plus_id_or_their_own_once_at_their_next_reset(make):
    manager, own = make({"length": 1}, {"length": 1}), [3, 4]
    manager.seed(10)
    manager.launch()
    act(manager)
    manager.reset()
    assert manager.told == [[(10,), {}, {}, {}], [(11,), {}, {}, {}]]
    manager.seed(own, dynamic_seed=False)
    own[1] = 50
    manager.reset({1: None})
    assert [told[4:] for told in manager.told] == [[], [(4, False), {}]]
    manager.reset()
    manager.seed({0: 7})
    manager.reset()
    assert [told[4:] for told in manager.told] == [[(3, False), {}, (7,), {}], [(4, False), {}, {}, {}]]
    manager.close()
    manager.launch()
    assert manager.told == [[(7,), {}], [(4, False), {}]]


def test_seeds_that_are_not_for_these_envs_are_refused(make):
    for seed, error in (([1], AssertionError), ({2: 1}, RuntimeError), (1.0, TypeError)):
        with pytest.raises(error):
            make({}, {}).seed(seed)


def test_seeding_the_manager_seeds_random_actions_alike_in_all_managers(make):
    def draw(manager):
        manager.seed([3, 4])
        manager.launch()
        return [{env_id: action.tolist() for env_id, action in manager.random_action().items()} for _ in range(9)]

    drawn = draw(make({}, {}))
    with BaseEnvManager([Make(0), Make(1)], {}) as other:
        assert drawn == draw(other) and list(drawn[0]) == [0, 1]


def test_figures_images_and_attributes_come_from_the_envs(make):
    manager = make({"length": 1}, {"length": 5}, episode_num=1)
    manager.launch()
    manager.enable_save_figure(1, "figures")
    act(manager)
    assert manager.ready_imgs == {1: "rgb_array 1 0 1"}
    assert [render("human") for render in manager.render] == ["human 0 0 1", "human 1 0 1"]
    assert manager.length == [1, 5]
    manager.env_ref.only_here = 1
    assert manager.only_here == [None, None]
    with pytest.raises(AttributeError):
        _ = manager.nothing_of_the_kind
    with pytest.raises(RuntimeError, match="'secret' cannot be reached"):
        _ = manager.secret
    assert "render" in manager.method_name_list


def test_a_closed_manager_can_be_copied_and_pickled(cls, make):
    manager = make({})
    for twin in (copy.copy(manager), copy.deepcopy(manager), pickle.loads(pickle.dumps(manager))):
        with twin:
            twin.launch()
            assert shown(twin, 1) == {0: [0, 0, 0]}
    with pytest.raises(AttributeError):
        _ = cls.__new__(cls)._anything


STUCK = Raise(ValueError("stuck"))


def test_a_reset_that_fails_every_time_closes_the_manager(make):
    manager = make({}, {"deeds": {("reset", -1): STUCK}}, max_retry=2)
    with pytest.raises(RuntimeError, match="Env 1 reset has exceeded") as caught:
        manager.launch()
        shown(manager, 2)
    assert isinstance(caught.value.__cause__, ValueError)
    assert str(caught.value).count("Traceback") == 1
    assert manager.closed and states(manager) == ["VOID"] * 2


def test_an_auto_reset_that_fails_closes_the_manager(make):
    manager = make({"length": 1, "deeds": {("reset", 1): STUCK}})
    manager.launch()
    with pytest.raises(RuntimeError, match="Env 0 reset has exceeded"):
        act(manager)
        shown(manager, 1)  # which waits for it
    assert manager.closed


def test_retry_type_reset_tries_the_same_env_again(make):
    manager = make({"length": 1, "deeds": {("reset", 1): STUCK}}, max_retry=2)
    manager.launch({0: {"level": 1}})
    act(manager)
    assert shown(manager, 1) == {0: [0, 1, 0]} and manager.told == [[{"level": 1}] * 3]


def test_retry_type_renew_makes_the_env_anew_with_its_seed_and_parameters(make, tmp_path):
    deeds = {("reset", 0): Once(tmp_path / "stuck", STUCK), ("close", 0): Touch(tmp_path / "closed")}
    manager = make({"deeds": deeds}, max_retry=2, retry_type="renew")
    manager.seed(5)
    manager.launch({0: {"level": 1}})
    shown(manager, 1)
    assert manager.told == [[(5,), {"level": 1}]] and (tmp_path / "closed.0").exists()
