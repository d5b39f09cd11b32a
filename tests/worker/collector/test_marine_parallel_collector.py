"""What a Marine collector sends, with envs of two players and scripted policies."""

import json

import numpy as np
import pytest
import torch

from ding.utils.config_helper import ConfigError
from ding.worker.collector import MarineParallelCollector
from ding.worker.collector.marine_parallel_collector import joint_actions, left_return, result_of
from tests.worker.collector.battles import whole
from tests.worker.collector.marine_fakes import SentByPath, battle_cfg, make, play
from tests.worker.collector.parallel_fakes import (
    ENVS,
    POLICIES,
    forget_fakes,
    listed,
    weights,
)


@pytest.fixture(autouse=True)
def fresh_fakes():
    yield
    forget_fakes()


@pytest.fixture
def sent():
    return SentByPath()


def step_of(env_id, player, episode, step, action, done=False):
    return {
        "obs": [env_id, player, episode, step],
        "next_obs": [env_id, player, episode, step + 1],
        "action": [action + 100 * player],
        "reward": [(1.0, -1.0)[player]],
        "done": done,
        "terminated": False,
        "truncated": done,
        "collect_iter": (7, 3)[player],
    }


def samples_of(sent):
    return [listed(sample) for chunk in sent.chunks.values() for sample in chunk]


# What is sent.


@pytest.mark.parametrize("info", ["shared", "each"])
def test_each_player_sends_what_it_saw_and_did(sent, info):
    collector = play(sent, lengths=(3, 2), env={"info": info})
    name = f"env_{collector.collector_uid}_0"
    assert {chunk: [listed(sample) for sample in samples] for chunk, samples in sent.chunks.items()} == {
        name: [
            step_of(0, 0, 0, 0, action=1),
            step_of(0, 0, 0, 1, action=2),
            step_of(1, 0, 0, 0, action=1),
            step_of(1, 0, 0, 1, action=2, done=True),
            step_of(0, 1, 0, 0, action=1),
            step_of(0, 1, 0, 1, action=2),
            step_of(1, 1, 0, 0, action=1),
            step_of(1, 1, 0, 1, action=2, done=True),
            step_of(0, 0, 0, 2, action=3, done=True),  # a fragment ends with its episode
            step_of(0, 1, 0, 2, action=3, done=True),
        ]
    }


@pytest.mark.parametrize(("flags", "learner"), [((True, False), 0), ((False, True), 1)])
def test_a_policy_that_does_not_learn_sends_nothing(sent, flags, learner):
    collector = play(sent, lengths=(3, 2), flags=flags)
    steps = [(0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 1, 2), (0, 2, 3)]
    assert samples_of(sent) == [
        step_of(env_id, learner, 0, step, action, done=(env_id, step) in ((0, 2), (1, 1)))
        for env_id, step, action in steps
    ]
    assert {row["player"] for row in sent.rows} == {learner}
    assert [len(policy.fragments) for policy in collector.policy] == [3 * learns for learns in flags]
    assert collector.get_finish_info()["sample_count"] == 5


def test_all_policies_learn_where_the_task_does_not_say_which(sent):
    cfg = battle_cfg()
    del cfg["policy_update_flag"]
    sent.attach(MarineParallelCollector(cfg)).start()
    assert [row["player"] for row in sent.rows].count(0) == [row["player"] for row in sent.rows].count(1) == 5


def test_the_metadata_tell_of_each_sample(sent):
    collector = play(sent, lengths=(1, 1), flags=(False, True))
    times = [row.pop("get_data_time") for row in sent.rows]
    common = {
        "eval_flag": False,
        "data_id": f"env_{collector.collector_uid}_0",
        "player": 1,
        "policy_iter": [7, 3],
        "collect_iter": 3,
        "unroll_len": 1,
        "compressor": "lz4",
        "priority": 1.0,
        "cur_episode": 2,
        "cur_step": 2,
    }
    assert sent.rows == [{**common, "env_id": i, "data_index": i, "cur_sample": i + 1} for i in range(2)]
    assert times[0] == times[1] > 1e9


@pytest.mark.differs(
    "sends fragments that span two episodes in marine collectors, counts steps twice, and lacks `train_iter` "
    "at the end",
    "sends fragments of one episode, and counts steps once",
)
def test_no_fragment_holds_steps_of_two_episodes_envs_or_players(sent):
    collector = play(sent, lengths=(3, 4, 5), episodes=3, n_sample=4)
    fragments = [fragment for policy in collector.policy for fragment in policy.fragments]
    places = [[whole(row["obs"]) for row in fragment] for fragment in fragments]
    assert all(len({tuple(place[:3]) for place in fragment}) == 1 for fragment in places)
    assert all(
        [place[3] for place in fragment] == list(range(fragment[0][3], fragment[-1][3] + 1)) for fragment in places
    )
    assert sorted(place for fragment in places for place in fragment) == [
        [env_id, player, episode, step]
        for env_id, length in enumerate((3, 4, 5))
        for player in range(2)
        for episode in range(3)
        for step in range(length)
    ]
    assert len(sent.rows) == 2 * 3 * (3 + 4 + 5)


def test_each_policy_says_how_long_its_fragments_are(sent):
    collector = play(sent, lengths=(4,), left={"n_sample": 3}, right={"n_sample": None, "n_episode": 1})
    assert [[len(fragment) for fragment in policy.fragments] for policy in collector.policy] == [[3, 1], [4]]


# Who acts.


@pytest.mark.parametrize("form", ["array", "list", "tuple", "dicts", "keyed"])
def test_each_policy_sees_float_tensors_of_its_own_side_and_the_envs_get_the_pair_of_actions(sent, form):
    collector = make(sent, lengths=(2, 1), env={"form": form})
    observed = [[], []]
    for policy, mine in zip(collector.policy, observed, strict=True):

        def watched(obs, forward=policy.forward, mine=mine, **kwargs):
            mine.append(obs)
            return forward(obs, **kwargs)

        policy.forward = watched
    collector.start()
    for player, rounds in enumerate(observed):
        assert [{env_id: whole(obs) for env_id, obs in seen.items()} for seen in rounds] == [
            {0: [0, player, 0, 0], 1: [1, player, 0, 0]},
            {0: [0, player, 0, 1]},
        ]
        parts = [
            part for seen in rounds for obs in seen.values() for part in (obs.values() if form == "dicts" else [obs])
        ]
        assert {(type(part), part.dtype) for part in parts} == {(torch.Tensor, torch.float32)}
    assert [policy.kwargs for policy in collector.policy] == [[{"eps": 0.5}] * 2] * 2
    assert [policy.resets for policy in collector.policy] == [[[1], [0]]] * 2
    actions = [[(type(action), action.tolist()) for action in env.actions] for env in ENVS[-2:]]
    assert actions == [[(np.ndarray, [1, 101]), (np.ndarray, [2, 102])], [(np.ndarray, [1, 101])]]


def outputs(*actions):
    return [{4: {"action": action}} for action in actions]


@pytest.mark.parametrize(
    "pair",
    [
        (np.array([1]), np.array([1.5])),
        (np.array([1]), np.array([1, 2])),
        ({"type": np.array([0])}, {"type": np.array([1])}),
    ],
)
def test_actions_that_cannot_be_stacked_are_a_list(pair):
    joint = joint_actions(outputs(*pair), [4])[4]
    assert type(joint) is list and [repr(action) for action in joint] == [repr(action) for action in pair]


@pytest.mark.parametrize(("is_eval", "action"), [(False, [42, 43]), (True, 42)])
def test_a_subclass_may_infer_without_the_policies(sent, is_eval, action):
    class Constant(MarineParallelCollector):
        def _policy_inference(self, obs):
            return {env_id: torch.tensor(action) for env_id in obs}

    make(sent, Constant, lengths=(1,), is_eval=is_eval).start()
    assert [sample["action"] for sample in samples_of(sent)] == ([] if is_eval else [[42], [43]])
    assert [done.tolist() for env in ENVS for done in env.actions] == [action]


def test_a_subclass_may_change_what_the_policies_see(sent):
    class Shifted(MarineParallelCollector):
        def _policy_inference(self, obs):
            return super()._policy_inference({env_id: pair + 10 for env_id, pair in obs.items()})

    collector = make(sent, Shifted, lengths=(1,))
    collector.start()
    assert [policy.seen[0][0].tolist() for policy in collector.policy] == [[10, 10, 10, 10], [10, 11, 10, 10]]


# Evaluation.


def test_an_evaluator_plays_one_policy_and_sends_infos_only(sent):
    collector = play(sent, lengths=(2, 1), is_eval=True, n_sample=None)
    assert [what for what, _ in sent.events] == ["info", "info"]
    assert sent.of("info")[-1]["collector_done"] and sent.of("info")[-1]["eval_flag"]
    (policy,) = collector.policy
    assert POLICIES[0].fields == ["eval"] and policy.kwargs == [{}, {}]
    assert {i: obs.tolist() for i, obs in policy.seen[0].items()} == {0: [0, 0, 0, 0], 1: [1, 0, 0, 0]}
    assert [(action.shape, action.item()) for env in ENVS[-2:] for action in env.actions] == [((), 1), ((), 2), ((), 1)]
    assert policy.resets == [[1], [0]]


def test_an_evaluation_reports_the_results_of_its_player(sent):
    results = {"0": [20, -1], "1": [0, 5]}
    collector = play(sent, lengths=(1, 2), episodes=2, is_eval=True, env={"results": results})
    info = collector.get_finish_info()
    assert info["reward_raw"] == [[20.0, -1.0], [0.0, 5.0]]
    assert info["game_result"] == [["wins", "losses"], ["draws", "wins"]]
    assert (info["reward_mean"], info["train_iter"], info["step_count"]) == (6.0, 7, 6)
    assert "collect_setting" not in info


# Results.


@pytest.mark.parametrize(
    "info",
    [
        {"eval_episode_return": np.array([3.0, -3.0])},
        {"eval_episode_return": [torch.tensor([3.0]), torch.tensor([-3.0])]},
        {"eval_episode_return": {0: 3.0, 1: -3.0}},
        {"eval_episode_return": torch.tensor(3.0)},
        {"eval_episode_return": 3},
        [{"eval_episode_return": 3.0}, {"eval_episode_return": -3.0}],
        {0: {"eval_episode_return": np.array([3.0])}, 1: {}},
    ],
)
def test_the_return_of_an_episode_is_that_of_player_0(info):
    value = left_return(info, 0)
    assert type(value) is float and value == 3.0


def test_the_sign_of_the_return_is_the_result():
    assert [result_of(value) for value in (0.5, 0.0, -0.0, -0.5)] == ["wins", "draws", "draws", "losses"]


def test_the_finish_info_of_collecting(sent):
    results = {"0": [1, -1], "1": [1]}
    info = play(sent, lengths=(3, 1), episodes=2, flags=(False, True), env={"results": results}).get_finish_info()
    own = {
        "train_iter": 3,
        "step_count": 8,  # env steps, however many players there are
        "sample_count": 8,
        "reward_mean": 0.25,
        "reward_raw": [[1.0, -1.0], [1.0, 0.0]],
        "game_result": [["wins", "losses"], ["wins", "draws"]],
    }
    assert own.items() <= info.items() and info["reward_std"] == pytest.approx(np.std([1, -1, 1, 0]))
    assert json.loads(json.dumps(info)) == info


# The weights.


def test_every_policy_waits_for_its_own_weights():
    sent = SentByPath(right=[FileNotFoundError("right"), weights(4)])
    collector = play(sent)
    assert [policy.log[0] for policy in collector.policy] == ["load 7", "load 4"]
    assert {tuple(row["policy_iter"]) for row in sent.rows} == {(7, 4)}
    assert {(row["player"], row["collect_iter"]) for row in sent.rows} == {(0, 7), (1, 4)}


def test_policies_that_share_a_path_get_the_same_weights():
    sent = SentByPath()  # which hands out each state once
    collector = play(sent, paths=("left", "left"))
    assert [policy.log[0] for policy in collector.policy] == ["load 7", "load 7"]
    assert {row["collect_iter"] for row in sent.rows} == {7}


def test_a_policy_without_a_path_plays_as_it_was_made():
    sent = SentByPath()
    collector = play(sent, paths=("left", None), flags=(True, False))
    assert sent.asked[0] == "left" and set(sent.asked) == {"left"}
    assert collector.policy[1].log == ["forward"] * 3
    assert {tuple(row["policy_iter"]) for row in sent.rows} == {(7, 0)}


# What goes wrong.


@pytest.mark.parametrize("info", ["shared", "each"])
def test_an_abnormal_step_voids_the_episode_of_both_players(sent, info):
    collector = make(sent, lengths=(2, 3), n_sample=9, env={"abnormal_at": [1, 0, 2], "info": info})
    lines = []
    collector.info = lines.append
    collector.start()
    assert [sample["obs"][:3] for sample in samples_of(sent)] == [
        [0, 0, 0],
        [0, 0, 0],
        [0, 1, 0],
        [0, 1, 0],
        *[[1, 0, 1]] * 3,
        *[[1, 1, 1]] * 3,
    ]
    assert [policy.resets for policy in collector.policy] == [[[1], [0], [1]]] * 2
    assert lines == ["env 1 returned an abnormal step; it was reset and its running episode dropped"]
    info = collector.get_finish_info()
    assert (info["real_episode_count"], info["step_count"]) == (2, 6)


@pytest.mark.parametrize(("is_eval", "number", "wanted"), [(False, 1, "collects with 2"), (True, 2, "evaluates 1")])
def test_the_number_of_policies_is_that_of_the_players(is_eval, number, wanted):
    cfg = battle_cfg(is_eval=is_eval)
    cfg.policy = cfg.policy[:1] * number
    with pytest.raises(AssertionError, match=rf"{wanted} polic(y|ies), got {number} in the list 'policy'"):
        MarineParallelCollector(cfg)
    assert ENVS == []


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("policy", {"type": "seat_task"}, "for each policy, a dict"),
        ("policy_update_path", "left", "for each policy, a str or None"),
        ("policy_update_path", ["left", 3], "for each policy, a str or None"),
        ("policy_update_flag", True, "for each policy, a bool"),
        ("policy_update_flag", [True, 1.5], "for each policy, a bool"),
        ("chunk_size", 0, "an integer"),
    ],
)
def test_a_wrong_value_is_refused(key, value, allowed):
    cfg = battle_cfg()
    cfg[key] = value
    with pytest.raises(ConfigError, match=f"{key} = .* is not allowed; it must be .*{allowed}"):
        MarineParallelCollector(cfg)


def test_paths_of_weights_are_needed():
    cfg = battle_cfg()
    del cfg["policy_update_path"]
    with pytest.raises(ConfigError):
        MarineParallelCollector(cfg)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_policy_that_learns_must_say_how_much_to_collect_in_one_way(side):
    with pytest.raises(AssertionError, match="n_sample = 2 and n_episode = 3; only one of them"):
        make(**{side: {"n_episode": 3}})
    with pytest.raises(AssertionError):
        make(**{side: {"n_sample": None}})
    assert [env.closed for env in ENVS[-2:]] == [1, 1]  # the envs that were launched before it
