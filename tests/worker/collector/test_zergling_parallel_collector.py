"""What a Zergling collector sends, with counting envs and a scripted policy."""

import threading

import numpy as np
import pytest
import torch
from easydict import EasyDict

import ding.worker
from ding.utils.config_helper import ConfigError
from ding.utils.data.samples import Column, Kind, Samples, Table, table_of
from ding.worker.collector import (
    MarineParallelCollector,
    ZerglingParallelCollector,
    create_parallel_collector,
    get_parallel_collector_cls,
    task_collector,
)
from ding.worker.collector.task_collector import PolicyWatch, SampleSender
from tests.fakes import FakeManager
from tests.worker.collector import parallel_fakes
from tests.worker.collector.marine_fakes import battle_cfg
from tests.worker.collector.parallel_fakes import (
    DEADLINE_S,
    ENVS,
    GATES,
    POLICIES,
    Gate,
    ScriptedWatch,
    Sent,
    collector_cfg,
    forget_fakes,
    in_thread,
    join_threads,
    listed,
    make,
    play,
    use_watches,
    weights,
)


@pytest.fixture(autouse=True)
def fresh_fakes():
    yield
    forget_fakes()


@pytest.fixture
def sent():
    return Sent(weights(7))


def step_of(env_id, episode, step, action, done=False, collect_iter=7):
    return {
        "obs": [env_id, episode, step],
        "next_obs": [env_id, episode, step + 1],
        "action": [action],
        "reward": [1.0],
        "done": done,
        "collect_iter": collect_iter,
    }


# What is sent.


@pytest.mark.differs("sends a file and a message for each sample", "sends chunks")
def test_fragments_are_sent_in_chunks_of_at_least_the_chunk_size_and_the_rest_at_the_end(sent):
    collector = play(sent, lengths=(3, 2), episodes=2, n_sample=2, chunk_size=4)
    uid = collector.collector_uid
    assert {name: [listed(sample) for sample in chunk] for name, chunk in sent.chunks.items()} == {
        f"env_{uid}_0": [
            step_of(0, 0, 0, action=1),
            step_of(0, 0, 1, action=2),
            step_of(1, 0, 0, action=1),
            step_of(1, 0, 1, action=2, done=True),
        ],
        f"env_{uid}_1": [
            step_of(0, 0, 2, action=3, done=True),  # a fragment ends with its episode
            step_of(1, 1, 0, action=3),
            step_of(1, 1, 1, action=4, done=True),
            step_of(0, 1, 0, action=4),
            step_of(0, 1, 1, action=5),
        ],
        f"env_{uid}_2": [step_of(0, 1, 2, action=6, done=True)],
    }


def test_samples_come_before_their_metadata_and_the_info_that_says_the_end_comes_last(sent):
    play(sent, lengths=(1, 2), episodes=2, n_sample=1, chunk_size=2)
    assert [what for what, _ in sent.events] == ["data", "rows", "info"] * 3
    infos = sent.of("info")
    assert [info["collector_done"] for info in infos] == [False, False, True]
    assert infos[-1].pop("get_info_time") > 1e9
    assert infos[-1] == {
        "eval_flag": False,
        "collector_done": True,
        "cur_episode": 4,
        "cur_sample": 6,
        "cur_step": 6,
    }


def test_a_sample_waits_no_longer_than_the_flush_interval(sent):
    play(sent, lengths=(2, 2), n_sample=1, flush_interval_s=0)
    assert [len(chunk) for chunk in sent.chunks.values()] == [2, 2]


def test_whole_episodes_are_fragments_when_the_policy_counts_episodes(sent):
    collector = play(sent, lengths=(3, 2), n_sample=None, policy={"n_episode": 2})
    assert [len(fragment) for fragment in collector.policy.fragments] == [2, 3]


@pytest.mark.differs(
    "reports a sample's compressed bytes as `unroll_len`, always 1.0 as priority, and no `collect_iter`",
    "reports the number of steps, the policy's priority and the iteration",
)
def test_the_real_length_priority_and_iteration_of_samples_of_several_steps_are_told():
    sent = Sent(weights(3))
    collector = make(sent, lengths=(2,), n_sample=2)
    steps = []

    def samples(transitions):
        steps.extend(transitions)
        lists = {key: [step[key] for step in transitions] for key in transitions[0]}
        return [
            transitions,
            {**lists, "priority": torch.tensor([0.25])},
            {"obs": transitions[0]["obs"], "priority": 2},
            {"obs": transitions[0]["obs"], "priority": [0.5, 0.75]},
        ]

    collector.policy.sample = samples
    collector.start()
    assert [(row["unroll_len"], row["priority"], row["collect_iter"], row["policy_iter"]) for row in sent.rows] == [
        (2, 1.0, 3, 3),
        (2, 0.25, 3, 3),
        (1, 2.0, 3, 3),
        (1, 0.5, 3, 3),
    ]
    (chunk,) = sent.chunks.values()
    assert [listed(step) for step in chunk[0]] == [listed(step) for step in steps]


def test_what_sending_returns_goes_into_the_metadata(sent):
    collector = make(sent, lengths=(1,))
    collector.send_stepdata = lambda path, data: "a reference"
    collector.start()
    assert sent.rows[0]["object_ref"] == "a reference"


@pytest.mark.parametrize("compressor", ["none", "zlib"])
def test_the_compressor_of_the_config_is_used(sent, compressor):
    sent.compressor = compressor
    play(sent, compressor=compressor)
    assert sum(map(len, sent.chunks.values())) == 5
    assert {row["compressor"] for row in sent.rows} == {compressor}


def test_a_policy_that_makes_no_samples_sends_none(sent):
    collector = make(sent, lengths=(1,))
    collector.policy.sample = lambda transitions: []
    collector.start()
    assert [what for what, _ in sent.events] == ["info"]


def test_the_collect_setting_goes_to_the_policy(sent):
    collector = play(sent, lengths=(2,))
    assert collector.policy.kwargs == [{"eps": 0.5}] * 2


def test_the_policy_sees_float32_tensors_and_is_reset_when_episodes_end(sent):
    collector = make(sent, lengths=(2, 1), episodes=2)
    forward, seen = collector.policy.forward, []
    collector.policy.forward = lambda obs, **kwargs: seen.extend(obs.values()) or forward(obs, **kwargs)
    collector.start()
    assert {(type(obs), obs.dtype) for obs in seen} == {(torch.Tensor, torch.float32)}
    assert collector.policy.resets == [[1], [0, 1], [0]]


@pytest.mark.parametrize("batched", [True, False])
def test_envs_are_acted_in_with_arrays(sent, batched):
    play(sent, lengths=(2,), policy={"batched": batched})
    actions = [action for env in ENVS for action in env.actions]
    assert [(type(action).__name__, action.tolist()) for action in actions] == [("ndarray", [1]), ("ndarray", [2])]


# Evaluation.


def test_an_evaluator_sends_infos_and_no_samples(sent):
    collector = play(sent, lengths=(3, 2), is_eval=True, n_sample=None)
    assert [what for what, _ in sent.events] == ["info", "info"]
    assert sent.of("info")[-1]["collector_done"] and sent.of("info")[-1]["eval_flag"]
    assert collector.policy.kwargs == [{}] * 3
    assert POLICIES[0].fields == ["eval"]


def test_an_evaluator_keeps_the_weights_it_began_with(sent):
    sent.states.append(weights(8))
    collector = play(sent, is_eval=True, update_policy_second=0)
    assert sent.asked == ["policy"] and collector.get_finish_info()["train_iter"] == 7


# The weights.


@pytest.mark.differs("replaces weights while the policy may be acting", "replaces them between two rounds")
def test_new_weights_are_taken_up_between_two_rounds_and_noted_in_the_samples(monkeypatch):
    use_watches(monkeypatch, policy=(watch := ScriptedWatch(1, None, weights(5))))
    sent = Sent()
    collector = make(sent, lengths=(3,), n_sample=1, flush_interval_s=0, first_policy_timeout_s=9)
    collector.start()
    assert collector.policy.log == ["load 1", "forward", "forward", "load 5", "forward"]
    assert [row["policy_iter"] for row in sent.rows] == [row["collect_iter"] for row in sent.rows] == [1, 1, 5]
    assert watch.calls == [("first", 9), "start", "close"] and watch.looks == 3  # after each chunk
    assert collector.get_finish_info()["train_iter"] == 5


# What is reported.


def test_the_finish_info_of_collecting(sent):
    collector = play(sent, lengths=(3, 1), episodes=2, chunk_size=1)
    info = collector.get_finish_info()
    assert info.pop("duration") > 0 and info.pop("finish_time") > 1e9
    times = [info.pop(f"avg_time_per_{of}") for of in ("episode", "step", "train_sample")]
    assert times[0] == pytest.approx(2 * times[1]) and times[1] == pytest.approx(times[2])
    assert info == {
        "eval_flag": False,
        "env_num": 2,
        "train_iter": 7,
        "collector_done": True,
        "predefined_episode_count": 4,
        "real_episode_count": 4,
        "step_count": 8,
        "sample_count": 8,
        "avg_step_per_episode": 2.0,
        "avg_sample_per_episode": 2.0,
        "reward_mean": 2.0,
        "reward_std": 1.0,
        "reward_raw": [3.0, 3.0, 1.0, 1.0],
        "collect_setting": {"eps": 0.5},
    }


@pytest.mark.differs(
    "fails in `get_finish_info` before the first step, and when `env_manager` of a parallel collector is read",
    "reports zeros, and returns it",
)
def test_the_finish_info_of_a_collector_that_has_not_played_is_zero():
    info = make().get_finish_info()
    assert (
        info["train_iter"] == info["step_count"] == info["reward_mean"] == info["reward_std"] == info["duration"] == 0
    )
    assert {info[f"avg_time_per_{of}"] for of in ("episode", "step", "train_sample")} == {0.0}
    assert info["reward_raw"] == [] and info["collector_done"] is False


def test_an_evaluation_with_nothing_to_play_says_that_it_is_over(sent):
    collector = make(sent)
    manager = FakeManager([1], episode_num=1)
    collector.env_manager = manager
    manager.step({0: 0})
    collector.start()
    assert [(what, content.get("collector_done")) for what, content in sent.events] == [("info", True)]


# Env managers and policies.


def test_the_env_manager_can_be_read_and_one_that_is_set_is_launched_and_replaces_the_old_one():
    collector = make()
    first = collector.env_manager
    manager = FakeManager([1, 1, 1], episode_num=4)
    collector.env_manager = manager
    assert collector.env_manager is manager and manager.calls == ["launch"] and first.closed
    info = collector.get_finish_info()
    assert (info["env_num"], info["predefined_episode_count"]) == (3, 12)


def test_a_policy_must_say_how_much_to_collect():
    with pytest.raises(AssertionError, match="gives neither n_sample nor n_episode"):
        make(n_sample=None)
    assert [env.closed for env in ENVS[-2:]] == [1, 1]  # the envs that were launched before it


def test_the_envs_are_seeded_where_the_config_has_a_seed():
    make(seed=5)
    assert [env.seeds for env in ENVS[-2:]] == [[5], [6]]
    ENVS.clear()
    make()
    assert [env.seeds for env in ENVS] == [[]] * len(ENVS)


def test_an_abnormal_step_voids_the_episode(sent):
    collector = make(sent, lengths=(2, 3), n_sample=9, env={"abnormal_at": [1, 0, 2]})
    lines = []
    collector.info = lines.append
    collector.start()
    samples = [listed(sample)["obs"][:2] for chunk in sent.chunks.values() for sample in chunk]
    assert samples == [[0, 0]] * 2 + [[1, 1]] * 3
    assert collector.policy.resets == [[1], [0], [1]]
    assert lines == ["env 1 returned an abnormal step; it was reset and its running episode dropped"]
    assert collector.get_finish_info()["real_episode_count"] == 2


# What goes wrong.


def test_an_exception_of_an_env_reaches_the_caller(sent):
    collector = make(sent, env={"raise_at": [1, 0, 2]}, update_policy_second=1000)
    with pytest.raises(RuntimeError, match="env 1 was told to fail"):
        collector.start()
    assert "update_policy" not in [thread.name for thread in threading.enumerate()]


def test_an_exception_of_the_policy_reaches_the_caller(sent):
    with pytest.raises(ArithmeticError):
        play(sent, policy={"fail_at": 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("print_freq", 0),
        ("chunk_size", 0),
        ("flush_interval_s", -1),
        ("update_policy_second", -1),
        ("first_policy_timeout_s", "soon"),
        ("eval_flag", 1),
        ("seed", -1),
        ("collect_setting", 3),
    ],
)
def test_a_wrong_value_is_refused(key, value):
    with pytest.raises(ConfigError, match=f"{key} = .* is not allowed"):
        make(**{key: value})


def test_what_is_needed_is_named():
    cfg = collector_cfg()
    del cfg["policy"]
    with pytest.raises(ConfigError):
        ZerglingParallelCollector(cfg)


# The end.


def test_closing_ends_the_collecting_after_the_round(sent):
    gate = GATES["g"] = Gate()
    collector = make(sent, lengths=(50,), env={"wait_at": [0, 0, 3], "gate": "g"}, n_sample=1, flush_interval_s=0)
    playing = in_thread(collector.start)
    assert gate.reached.wait(DEADLINE_S)
    closing = in_thread(collector.close)
    assert collector._stopping.wait(DEADLINE_S)
    assert not collector.env_manager.closed  # a round is under way
    gate.open()
    assert closing() is playing() is None
    assert collector.env_manager.closed and len(sent.rows) == 3
    assert [what for what, _ in sent.events if what == "info"] == []


def test_a_collector_starts_once(sent):
    collector = play(sent)
    with pytest.raises(RuntimeError, match="ZerglingParallelCollector.* starts once"):
        collector.start()


# Classes of others that build on it.


class Own(ZerglingParallelCollector):
    """Overrides every step of a round."""

    def __init__(self, cfg):
        self.processed = []
        super().__init__(cfg)

    def _policy_inference(self, obs):
        actions = super()._policy_inference(obs)
        return {env_id: torch.from_numpy(action) + 100 for env_id, action in actions.items()}

    def _env_step(self, actions):
        timesteps = super()._env_step(actions)
        return {env_id: step._replace(reward=step.reward * 10) for env_id, step in timesteps.items()}

    def _process_timestep(self, timestep):
        self.processed.append({env_id: (step.obs, step.reward) for env_id, step in timestep.items()})
        super()._process_timestep(timestep)


def test_a_subclass_that_overrides_a_step_of_the_round_is_asked(sent):
    collector = make(sent, Own, lengths=(2,))
    collector.start()
    assert [action.tolist() for env in ENVS for action in env.actions] == [[101], [102]]
    (chunk,) = sent.chunks.values()
    assert [(sample["action"].tolist(), sample["reward"].tolist()) for sample in chunk] == [
        ([1], [10.0]),
        ([2], [10.0]),
    ]
    assert [{i: (o.tolist(), r.tolist()) for i, (o, r) in step.items()} for step in collector.processed] == [
        {0: ([0, 0, 1], [10.0])},
        {0: ([0, 0, 2], [10.0])},
    ]


@pytest.mark.parametrize(
    ("name", "cls"), [("zergling", ZerglingParallelCollector), ("marine", MarineParallelCollector)]
)
def test_the_registered_class_is_built_by_its_type_and_has_the_documented_defaults(name, cls):
    cfg = collector_cfg() if name == "zergling" else battle_cfg()
    assert type(create_parallel_collector(cfg)) is cls is getattr(ding.worker, cls.__name__)
    assert get_parallel_collector_cls(EasyDict(type=name)) is cls
    defaults = cls.default_config()
    assert defaults.cfg_type == f"{cls.__name__}Dict"
    assert (defaults.print_freq, defaults.compressor, defaults.update_policy_second) == (5, "lz4", 3)
    with pytest.raises(KeyError):
        create_parallel_collector(EasyDict(type="nobody", import_names=[]))


def test_an_evaluation_in_an_env_that_never_ends_is_an_error_that_names_it_and_the_limit(sent):
    with pytest.raises(
        RuntimeError, match=r"env 1 has ended no evaluation episode for 40 .*policy.eval.evaluator.max_episode_steps"
    ):
        play(sent, lengths=(5, 10**9), is_eval=True, max_episode_steps=40)


@pytest.fixture
def normalizing(monkeypatch):
    """Have rollouts normalize the observations of the envs."""
    section = {"norm_obs": {"use_norm": True}}
    monkeypatch.setattr(parallel_fakes.TaskEnv, "rollout_normalization", section, raising=False)


def test_a_collector_reports_the_statistics_that_it_gathered(normalizing, sent):
    play(sent, lengths=(3, 2))
    gathered = [info["normalization"]["obs"] for info in sent.of("info") if "normalization" in info]
    assert sum(part["size"] for part in gathered) == 5
    # The observations that it acted on are [env, episode, step].
    sums = sum(part["size"] * torch.tensor(part["mean"]) for part in gathered)
    assert sums.tolist() == pytest.approx([2, 0, 4])


def test_an_evaluation_normalizes_by_the_statistics_of_its_weights_and_reports_none(normalizing):
    state = {"obs": {"mean": torch.tensor([1.0]), "var": torch.tensor([4.0]), "size": torch.tensor(9.0)}}
    sent = Sent({**weights(7), "normalization": state})
    collector = play(sent, lengths=(2,), is_eval=True)
    seen = torch.tensor([[float(x) for x in row] for rows in collector.policy.seen for row in rows.values()])
    # [env, episode, step] less 1, by 2; episode 1 is the one that begins once the statistics are there.
    assert seen.tolist() == [[-0.5, 0.0, -0.5], [-0.5, 0.0, 0.0]]
    assert all("normalization" not in info for info in sent.of("info"))


# The metadata of samples, in dicts and in columns.


class Sink:
    """Keeps chunks and metadata."""

    def __init__(self):
        def send_stepdata(name, content):
            self.contents.append(content)
            return self.reference

        self.contents, self.metadata, self.reference = [], [], None
        self.sender = SampleSender("env_a", send_stepdata, self.metadata.append, "lz4", 1, 0.0)


VALUE = Column(Kind.FLOAT, np.array([0.5, 1.5]))
FRAGMENTS = {
    "plain": {},
    "iterations": {"collect_iter": Column(Kind.INT, np.array([3, 4]))},
    "priorities": {"priority": Column(Kind.TENSOR, np.array([[2.0], [0.25]], np.float32))},
    "steps": {"collect_iter": Column(Kind.INT, np.array([[3, 3, 4], [5, 6, 6]]), steps=True)},
}


@pytest.mark.parametrize("more", [{}, {"policy_iter": [9, 2], "player": 1, "weight": 0.5}], ids=["usual", "more"])
@pytest.mark.parametrize("reference", [None, "of_the_object"])
@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_the_metadata_of_each_sample_are_in_columns(fragment, reference, more):
    sink = Sink()
    sink.reference = reference
    for number in range(2):
        for env_id in range(2):
            samples = Samples(Table({"value": VALUE, **FRAGMENTS[fragment]}))
            sink.sender.add(samples, env_id=env_id, collect_iter=7, **more)
        sink.sender.send({"cur_step": number, "get_data_time": 0.5})
    assert all(table_of(metadata) is not None for metadata in sink.metadata)
    iterations = {"iterations": [3, 4], "steps": [3, 5]}.get(fragment, [7, 7])
    expected = [
        {
            "cur_step": number,
            "get_data_time": 0.5,
            "data_id": f"env_a_{number}",
            "compressor": "lz4",
            "env_id": env_id,
            "data_index": 2 * env_id + i,
            "cur_sample": 4 * number + 2 * env_id + i + 1,
            "collect_iter": iterations[i],
            "policy_iter": iterations[i],
            "unroll_len": 3 if fragment == "steps" else 1,
            "priority": [2.0, 0.25][i] if fragment == "priorities" else 1.0,
            **({"object_ref": reference} if reference else {}),
            **more,
        }
        for number in range(2)
        for env_id in range(2)
        for i in range(2)
    ]
    rows = [row for rows in sink.metadata for row in rows]
    assert rows == expected and types(rows) == types(expected)
    assert sink.sender.sent == 8


def types(rows):
    return [{key: type(row[key]) for key in sorted(row)} for row in rows]


# How a collector comes by weights.


class Answers:
    """Gives its answers one after the other, the last for ever; exceptions are raised. `spent` says that all were."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.spent = threading.Event()

    def __call__(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if len(self.answers) == 1:
            self.spent.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch):
    monkeypatch.setattr(task_collector, "_FIRST_LOOK_S", 0.0)


def fetches():
    """The threads that look for weights."""
    return [thread for thread in threading.enumerate() if thread.name == "update_policy"]


def test_the_first_weights_are_waited_for():
    assert PolicyWatch(Answers(FileNotFoundError("a"), None, {"iter": 3}), 0).first(DEADLINE_S) == {"iter": 3}


@pytest.mark.parametrize("answer", [FileNotFoundError("nothing there"), None])
def test_the_wait_for_the_first_weights_ends_with_its_deadline(answer):
    with pytest.raises(TimeoutError):
        PolicyWatch(Answers(answer), 0).first(0)


def test_closing_ends_the_wait_for_the_first_weights():
    fetch = Answers(FileNotFoundError("a"), FileNotFoundError("a"))
    watch, found = PolicyWatch(fetch, 0), []
    thread = threading.Thread(target=lambda: found.append(watch.first(1000)), daemon=True)
    thread.start()
    assert fetch.spent.wait(DEADLINE_S)
    watch.close()
    thread.join(DEADLINE_S)
    assert found == [None]


def test_only_the_newest_of_later_weights_is_taken_and_once():
    fetch = Answers({"iter": 1}, {"iter": 2}, FileNotFoundError("a"), {"iter": 3}, None)
    watch = PolicyWatch(fetch, 0)
    assert watch.take() is None
    watch.start()
    watch.start()
    assert fetch.spent.wait(DEADLINE_S)
    watch.close()
    assert watch.take() == {"iter": 3}
    assert watch.take() is None


def test_what_goes_wrong_later_is_raised_where_the_weights_are_taken():
    watch = PolicyWatch(Answers(PermissionError("not for you")), 0)
    watch.start()
    join_threads("update_policy")
    for _ in range(2):
        with pytest.raises(PermissionError):
            watch.take()
    watch.close()


def test_the_thread_looks_in_intervals_and_ends_at_once():
    fetch = Answers({"iter": 1}, {"iter": 2})
    watch = PolicyWatch(fetch, 1000)
    watch.start()
    watch.close()
    assert fetches() == [] and watch.take() is None
