"""Training on several ranks: one model, shared work, one rank that writes."""

import os
import pickle

import pytest
import torch

from ding.entry.serial_run import evaluation_seed, rank_seed
from ding.policy.dqn import DQNPolicy
from tests.policy.learning import model_of
from tests.policy.samples import make_batch, make_config
from tests.ranks import run_ranks


def train(folder, run_kwargs, *args, n=2, folders=None):
    return [
        rank.result for rank in run_ranks("train", run_kwargs, *args, folder=folder, folders=folders, n=n, check=True)
    ]


def test_each_rank_has_a_seed_of_its_own_and_rank_0_that_of_the_run():
    seeds = [rank_seed(seed, rank) for seed in range(20) for rank in range(8)]
    assert [rank_seed(seed, 0) for seed in range(20)] == list(range(20))
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**31 for seed in seeds)
    assert not {evaluation_seed(seed) for seed in range(20)} & set(seeds)


@pytest.mark.differs("gives the envs and the exploration of all ranks the same seeds", "gives each rank its own seeds")
def test_replicas_stay_equal_bit_by_bit_while_they_see_different_episodes(tmp_path):
    first, second = train(tmp_path, {"max_train_iter": 12})
    assert first["checksum"] == second["checksum"]
    assert first["train_iter"] == second["train_iter"] == 12
    assert first["seeds"] == [3, 4] and not set(first["seeds"]) & set(second["seeds"])
    assert not set(first["seen"]) & set(second["seen"])


def test_replicas_of_an_on_policy_run_stay_equal_too(tmp_path):
    first, second = (rank.result for rank in run_ranks("train_on_policy", 12, folder=tmp_path, check=True))
    assert first == second and first[1] >= 12
    assert os.path.exists(tmp_path / "exp" / "result.pkl")


@pytest.mark.parametrize("bp_update_sync", [True, False])
def test_ranks_with_fewer_samples_of_their_episodes_take_as_many_steps(tmp_path, bp_update_sync):
    ranks = run_ranks("learn_unequal_collections", bp_update_sync, folder=tmp_path, check=True)
    first, second = (rank.result for rank in ranks)
    assert first == second and first[1] == 2 * 6


def test_one_rank_trains_as_a_process_without_a_group(tmp_path):
    (in_group,) = train(tmp_path, {"max_train_iter": 12}, n=1)
    (alone,) = train(tmp_path, {"max_train_iter": 12}, None, None, True, n=1)
    assert in_group["checksum"] == alone["checksum"] and in_group["seen"] == alone["seen"]
    assert in_group["per_collect"][0] == alone["per_collect"][0] == {}


def test_to_ddp_config_shares_out_batches_and_samples_but_not_envs(tmp_path):
    for result in train(tmp_path, {"max_train_iter": 3}):
        assert result["amounts"] == [2, 4, 2]


def test_counters_are_sums_over_the_ranks_in_one_operation_a_collect(tmp_path):
    first, second = train(tmp_path, {"max_train_iter": 12})
    assert first["envstep"] == second["envstep"] == first["own_steps"] + second["own_steps"]
    assert first["samples"] == second["samples"] >= 2 * 4 * len(first["per_collect"])
    assert first["episodes"] == second["episodes"] > 0
    for result in (first, second):
        assert all(counts == {"all_reduce": 1} for counts in result["per_collect"])


def test_the_limit_of_env_steps_is_one_of_all_ranks_together(tmp_path):
    first, second = train(tmp_path, {"max_env_step": 50})
    assert 50 <= first["envstep"] == second["envstep"] < 70
    assert first["train_iter"] == second["train_iter"]


def test_rank_0_evaluates_and_all_ranks_stop_with_its_verdict(tmp_path):
    first, second = train(tmp_path, {}, None, {"stop_value": 0})
    assert first["stop"] and second["stop"] and first["train_iter"] == second["train_iter"] == 6
    assert first["eval_info"] == second["eval_info"] and len(first["eval_info"]["eval_episode_return"]) == 3
    assert first["evaluator_envs"] == 2 and second["evaluator_envs"] == 0
    assert "ckpt_best.pth.tar" in os.listdir(tmp_path / "exp" / "ckpt")


@pytest.mark.differs("lets all ranks write the logs and the result", "writes on rank 0")
def test_rank_0_alone_writes_files(tmp_path):
    folders = [tmp_path / name for name in ("of_rank_0", "of_rank_1")]
    for folder in folders:
        folder.mkdir()
    train(tmp_path, {"max_train_iter": 12}, folders=folders)
    assert os.listdir(folders[1]) == []
    exp = folders[0] / "exp"
    assert sorted(os.listdir(exp)) == [
        "ckpt",
        "eval.jsonl",
        "formatted_total_config.json",
        "formatted_total_config.py",
        "log",
        "metrics",
        "metrics.jsonl",
        "result.json",
        "result.pkl",
        "total_config.json",
        "total_config.py",
    ]
    assert len((exp / "eval.jsonl").read_text().splitlines()) == 2
    assert len(os.listdir(exp / "log" / "serial")) == 1
    assert "RANK1" not in (exp / "log" / "learner" / "learner_logger.txt").read_text()


def test_all_ranks_take_the_new_name_of_an_experiment_that_is_there_already(tmp_path):
    (tmp_path / "exp").mkdir()
    first, second = train(tmp_path, {"max_train_iter": 3})
    assert first["exp_name"] == second["exp_name"] != "exp"
    assert sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir()) == ["exp", first["exp_name"]]


def test_resuming_without_a_checkpoint_is_refused_on_several_ranks(tmp_path):
    for rank in run_ranks("train", {"max_train_iter": 3}, {"learn": {"resume_training": True}}, folder=tmp_path):
        assert rank.status == 1 and "resume_training = True works with a single process only" in rank.err
    assert not (tmp_path / "exp").exists()


def test_all_ranks_resume_from_one_checkpoint(tmp_path):
    before = train(tmp_path, {"max_train_iter": 6})
    hook = {"load_ckpt_before_run": "exp/ckpt/iteration_6.pth.tar"}
    learn = {"resume_training": True, "learner": {"hook": hook}}
    first, second = train(tmp_path, {"max_train_iter": 12}, {"learn": learn})
    assert first["checksum"] == second["checksum"] != before[0]["checksum"]
    assert first["train_iter"] == second["train_iter"] == 12
    assert first["envstep"] == second["envstep"] > before[0]["envstep"]
    with open(tmp_path / "exp" / "result.pkl", "rb") as f:
        assert pickle.load(f)["env_step"] == first["envstep"]


def test_a_rank_without_a_batch_holds_up_the_update_on_all(tmp_path):
    first, second = (rank.result for rank in run_ranks("train_starved", folder=tmp_path, check=True))
    assert first == second and first[0] == 5 and first[2]


@pytest.mark.differs("trains models that drift apart on ranks without `multi_gpu`", "refuses to start")
def test_ranks_that_would_drift_apart_are_refused(tmp_path):
    for rank in run_ranks("train_apart", folder=tmp_path):
        assert rank.status == 1 and "policy.multi_gpu = False is not allowed on 2 ranks" in rank.err


@pytest.mark.parametrize(
    ("where", "cause", "is_saved"),
    [
        ("env", "ValueError: something has broken", True),
        ("policy", "ValueError: something has broken", True),
        ("learner", "FloatingPointError: total_loss = nan", False),  # its gradients have ruined all replicas
    ],
)
def test_a_run_that_breaks_on_rank_1_ends_on_rank_0_with_a_checkpoint_but_never_with_nan(
    tmp_path, where, cause, is_saved
):
    first, second = run_ranks("train_until", where, folder=tmp_path, deadline_s=20)
    assert first.status == second.status == 1
    assert cause in second.err and "another rank has ended or left the group" in first.err
    ckpt = tmp_path / "exp" / "ckpt"
    assert (ckpt / "ckpt_exception.pth.tar").exists() == is_saved
    assert ("ckpt_exception.pth.tar is not written: the parameters hold NaN" in first.err) != is_saved
    states = [torch.load(ckpt / name, weights_only=True)["model"] for name in os.listdir(ckpt)]
    assert states and all(bool(torch.isfinite(value).all()) for state in states for value in state.values())
    assert not (tmp_path / "exp" / "result.pkl").exists()


@pytest.mark.slow
def test_env_processes_end_with_their_rank(tmp_path):
    first, second = run_ranks("train_with_env_processes", None, folder=tmp_path, check=True)
    assert first.result == second.result
    first, second = run_ranks("train_with_env_processes", 5, folder=tmp_path, deadline_s=20)
    assert first.status == 1 and second.status == -9
    assert "another rank has ended or left the group" in first.err


@pytest.mark.parametrize("bp_update_sync", [True, False])
@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_shares_of_a_batch_give_the_step_of_the_whole(tmp_path, bp_update_sync, n):
    ranks = run_ranks("learn", 3, bp_update_sync, str(tmp_path), folder=tmp_path, n=n, check=True)
    assert len({rank.result for rank in ranks}) == 1
    before, after = torch.load(tmp_path / "0.pt", weights_only=True)
    policy = DQNPolicy(make_config(), enable_field=["learn"])
    model_of(policy).load_state_dict(before)
    policy.learn_mode.get_attribute("target_net").load_state_dict(before)
    policy.learn_mode.set_attribute("optimizer", torch.optim.SGD(model_of(policy).parameters(), lr=0.1))
    torch.manual_seed(100)
    for _ in range(3):
        policy.learn_mode.forward(make_batch(8))
    for name, value in model_of(policy).state_dict().items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=1e-6)
        assert not torch.equal(before[name], value)
