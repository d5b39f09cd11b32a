"""The page of learning at scale says what was measured, and the peer has the hyper-parameters of the recipes."""

import dataclasses
import json

import numpy as np
import pytest

from ding.config.config import resolve_class
from ding.entry.recipes import MEASURED, find_recipe
from ding.utils.default_helper import deep_merge_dicts
from tests.benchmarks import learning_peer, learning_report, learning_scale, learning_slow
from tests.benchmarks.learning_scale import OURS, PEER, TASKS, Result, Task, Unit, units


def test_the_page_and_the_figures_of_the_recipes_are_made_of_the_runs_that_are_kept():
    kept = learning_report.kept()
    assert learning_report.PAGE.read_text() == learning_report.page()
    assert json.loads(MEASURED.read_text()) == learning_report.measured(kept)
    seeds = {name: {library: one["seeds"] for library, one in of.items()} for name, of in kept.items()}
    assert seeds == {
        f"{task}/{policy}": {library: len(runs) for library, runs in libraries.items()}
        for (task, policy), libraries in learning_report.groups().items()
    }


def test_each_recipe_is_inside_or_above_the_interval_of_the_peer_or_reaches_its_goal_as_early():
    kept = learning_report.kept()
    verdicts = {
        f"{task.name}/{policy}": learning_report.verdict(task, kept[f"{task.name}/{policy}"]).split(" (")[0]
        for task in TASKS
        for policy in task.budgets
        if task.peers
    }
    assert verdicts == dict.fromkeys(verdicts, "met")


@pytest.mark.parametrize("result", list(learning_scale.results()), ids=lambda result: result.unit.name)
def test_a_run_is_whole(result):
    unit, steps = result.unit, [steps for steps, _ in result.curve]
    assert {key: result.about[key] for key in ("task", "policy", "library", "seed", "budget")} == {
        "task": unit.task.name, "policy": unit.policy, "library": unit.library, "seed": unit.seed,
        "budget": unit.budget,
    }  # fmt: skip
    before = find_recipe(unit.policy, unit.task.env_id).configs[0].policy.get("random_collect_size", 0)
    assert steps == sorted(steps) and steps[0] <= max(1100, before)
    assert all(len(line["returns"]) == unit.task.episodes for line in result.evaluations)
    gaps = np.diff(steps)
    has_ended_at_goal = unit.task.ends_at_goal and result.curve[-1][1] >= unit.task.goal
    assert has_ended_at_goal or steps[-1] > 0.9 * unit.budget
    assert gaps.max() < 1.3 * unit.task.every[unit.policy]


def test_each_task_has_a_recipe_whose_evaluations_play_an_episode_in_each_env():
    for unit in units():
        if unit.library == OURS and unit.seed == 0:
            main, create = learning_scale.configs(unit)
            assert (main.env.env_id, create.policy.type) == (unit.task.env_id, unit.policy)
            assert main.env.evaluator_env_num == main.env.n_evaluator_episode == unit.task.episodes
            assert main.env.get("stop_value") == (unit.task.goal if unit.task.ends_at_goal else None)


@pytest.mark.parametrize(("recipe", "steps", "iterations"), [
    (("dqn", "CartPole-v1"), 4000, 2000), (("ppo", "CartPole-v1"), 8192, 1280), (("a2c", "CartPole-v1"), 640, 10),
    (("sac", "Hopper-v5"), 5000, 5000),
])  # fmt: skip
def test_iterations_between_two_evaluations(recipe, steps, iterations):
    assert learning_scale.iterations_between_evaluations(*find_recipe(*recipe).configs, steps) == iterations


def translated(policy, env_id):
    main, create = find_recipe(policy, env_id).configs
    cfg = deep_merge_dicts(resolve_class("policy", create.policy).default_config(), main.policy)
    cfg.model.action_shape = 3
    return learning_peer.hyper_parameters(policy, cfg, main.env)


def test_the_peer_has_the_hyper_parameters_of_the_recipe():
    ppo = translated("ppo", "CartPole-v1")
    assert (ppo["n_steps"], ppo["batch_size"], ppo["n_epochs"], ppo["vf_coef"]) == (128, 64, 10, 0.5)
    assert ppo["policy_kwargs"]["net_arch"] == {"pi": [64, 64], "vf": [64, 64]}
    a2c = translated("a2c", "CartPole-v1")
    assert (a2c["n_steps"], a2c["vf_coef"], a2c["use_rms_prop"], a2c["gae_lambda"]) == (8, 0.5, False, 0.95)
    sac = translated("sac", "Hopper-v5")
    assert (sac["tau"], sac["ent_coef"], sac["learning_starts"], sac["train_freq"]) == (0.005, "auto_1.0", 10_000, 1)


def test_the_peer_has_the_hyper_parameters_of_the_recipe_of_td3():
    pytest.importorskip("stable_baselines3")
    td3 = translated("td3", "Hopper-v5")
    assert (td3["tau"], td3["policy_delay"], td3["target_policy_noise"]) == (0.005, 2, 0.2)


def test_evaluations_of_the_peer_play_the_episodes_of_ours(tmp_path, monkeypatch):
    from gymnasium.envs.classic_control import CartPoleEnv

    monkeypatch.chdir(tmp_path)
    seeds, reset = [], CartPoleEnv.reset

    def spied(self, *, seed=None, options=None):
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(CartPoleEnv, "reset", spied)
    unit = next(unit for unit in units() if unit.name == "CartPole-v1-ppo-ours-0")
    main, create = learning_scale.configs(unit)
    main.policy.eval.evaluator.eval_freq, main.policy.learn.epoch_per_collect = 1, 1
    main.env.collector_env_num, main.policy.collect.n_sample = 1, 32
    from ding.entry import serial_pipeline_onpolicy

    serial_pipeline_onpolicy((main, create), seed=3, max_env_step=64)
    ours = set(seeds)
    seeds.clear()
    episodes = learning_peer.Episodes(main.env, 3)
    for _ in range(3):
        assert len(episodes.play(lambda obs: [0] * len(obs))) == 10
    episodes.close()
    assert len(set(seeds)) == 30 and set(seeds) <= ours


# What is said of runs.

TASK = Task("CartPole-v1", {"dqn": 100}, {"dqn": 10}, 2, "475", 475)


def run(library, seed, values, cpu=1.0):
    evaluations = [{"env_steps": 10 * number, "returns": [value]} for number, value in enumerate(values)]
    about = {"cpu_seconds": cpu, "seconds": 2.0, "quiet": seed == 0}
    return Result(Unit(TASK, "dqn", library, seed), evaluations, about)


RISING = [*range(0, 500, 50), 500]


def test_the_final_return_is_that_of_the_last_tenth_before_the_end_where_only_the_peer_evaluates():
    assert learning_report.final_return(run(OURS, 0, [*[0] * 9, 100, 200])) == 100
    assert learning_report.final_return(run(OURS, 0, [0, 100, 200])) == 200  # it has ended at its goal
    assert run(OURS, 0, RISING).steps_to(450) == 90 and run(OURS, 0, RISING).steps_to(501) is None


def test_runs_are_summarised_over_seeds():
    pytest.importorskip("rliable")
    summary = learning_report.summarize({OURS: [run(OURS, 0, RISING), run(OURS, 1, [0] * 11, 3.0)]})[OURS]
    assert (summary["seeds"], summary["solved"], summary["cpu_seconds"], summary["seconds"]) == (2, 1, 2, 2)
    assert summary["final"]["iqm"] == (450 + 0) / 2 and summary["final"]["low"] < 225 < summary["final"]["high"]
    assert summary["steps_to_goal"] == 100 and len(summary["curve"]["iqm"]) == len(summary["curve"]["env_steps"])


def test_the_median_counts_runs_that_never_get_there_as_longest():
    assert learning_report._median_steps([30, None, 10]) == 30
    assert learning_report._median_steps([None, None, 10]) is None and learning_report._median_steps([]) is None


def told(seeds, solved, steps, iqm=500.0, low=490.0):
    final = {"iqm": iqm, "low": low, "high": 510.0}
    return {"seeds": seeds, "solved": solved, "steps_to_goal": steps, "final": final}


@pytest.mark.parametrize(
    ("ours", "peer", "words"),
    [
        (None, told(2, 2, 10), "not run"),
        (told(2, 2, 10), None, "no peer"),
        (told(2, 2, 10), told(2, 2, 10), "met"),
        (told(2, 2, 11), told(2, 2, 10), "missed: more env steps than the peer"),
        (told(2, 2, 11), told(2, 0, None), "met"),
        (told(2, 1, 5), told(2, 2, 10), "missed: 1 of 2 seeds do not solve it"),
        (told(1, 1, 5), told(2, 2, 10), "met (1 of 2 seeds so far)"),
    ],
)
def test_whether_a_goal_is_met(ours, peer, words):
    summary = {key: value for key, value in ((OURS, ours), (PEER, peer)) if value is not None}
    assert learning_report.verdict(TASK, summary) == words


def test_without_a_goal_the_return_is_compared_with_the_interval_of_the_peer():
    task = next(task for task in TASKS if task.goal is None)
    ours, peer = told(3, 0, None, iqm=489.0), told(3, 0, None)
    assert learning_report.verdict(task, {OURS: ours, PEER: peer}) == "missed: return below the peer's interval"
    assert learning_report.verdict(task, {OURS: peer, PEER: peer}) == "met"


# The env with slow steps.


@pytest.mark.parametrize("way", learning_slow.WAYS)
def test_each_way_has_eight_envs_that_collect(way):
    main, create, _ = learning_slow.configs(way)
    collectors = main.policy.collect.get("collector", {}).get("collector_num", 1)
    assert main.env.collector_env_num * collectors == 8
    assert create.env_manager.type == ("base" if way == "serial" else "subprocess")


@pytest.mark.parametrize("way", ["serial", "subprocess"])
def test_a_run_with_slow_steps_tells_its_seconds(way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = learning_slow.run_here(way, 0, step_s=1e-4, max_env_step=32)
    assert line["env_steps"] == 32 and not line["solved"] and line["seconds"] > 0
    row = learning_slow.table([line, {**line, "seed": 1, "solved": True}])[-1]
    assert row.startswith(f"| {way} | 2 | 1 of 2 | 32 / 32 |")
    assert learning_slow.table([]) == []


@pytest.mark.parametrize(("solved", "words"), [(1, "met"), (0, "missed: 1 of 1 seeds do not solve it")])
def test_a_task_without_a_peer_is_judged_by_its_goal(solved, words):
    task = dataclasses.replace(TASK, peers=())
    assert learning_report.verdict(task, {OURS: {"seeds": 1, "solved": solved}}) == words
    assert learning_report.verdict(dataclasses.replace(task, goal=None), {OURS: {"seeds": 1, "solved": 0}}) == "-"
