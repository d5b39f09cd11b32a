"""The page of learning at scale says what was measured, and the peer has the hyper-parameters of the recipes."""

import json

import numpy as np
import pytest

from ding.config.config import resolve_class
from ding.entry.recipes import MEASURED, find_recipe
from ding.utils import POLICY_REGISTRY
from ding.utils.default_helper import deep_merge_dicts
from tests.benchmarks import learning, learning_peer, learning_report, learning_scale
from tests.benchmarks.learning_scale import OURS, TASKS, Result, Task, Unit, units
from tests.benchmarks.learning_tasks import TASKS as POLICY_TASKS


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


def test_each_run_is_whole():
    for result in learning_scale.results():
        unit, steps = result.unit, [steps for steps, _ in result.curve]
        assert {key: result.about[key] for key in ("task", "policy", "library", "seed", "budget")} == {
            "task": unit.task.name, "policy": unit.policy, "library": unit.library, "seed": unit.seed,
            "budget": unit.budget,
        }  # fmt: skip
        before = find_recipe(unit.policy, unit.task.env_id).configs[0].policy.get("random_collect_size", 0)
        assert steps == sorted(steps) and steps[0] <= max(1100, before)
        assert all(len(line["returns"]) == unit.task.episodes for line in result.evaluations)
        has_ended_at_goal = unit.task.ends_at_goal and result.curve[-1][1] >= unit.task.goal
        assert has_ended_at_goal or steps[-1] > 0.9 * unit.budget
        assert np.diff(steps).max() < 1.3 * unit.task.every[unit.policy]


def test_each_task_has_a_recipe_whose_evaluations_play_an_episode_in_each_env():
    for unit in units():
        if unit.library == OURS and unit.seed == 0:
            main, create = learning_scale.configs(unit)
            assert (main.env.env_id, create.policy.type) == (unit.task.env_id, unit.policy)
            assert main.env.evaluator_env_num == main.env.n_evaluator_episode == unit.task.episodes
            assert main.env.get("stop_value") == (unit.task.goal if unit.task.ends_at_goal else None)


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


# What is said of runs.

TASK = Task("CartPole-v1", {"dqn": 100}, {"dqn": 10}, 2, "475", 475)


def run(library, seed, values, cpu=1.0):
    evaluations = [{"env_steps": 10 * number, "returns": [value]} for number, value in enumerate(values)]
    about = {"cpu_seconds": cpu, "seconds": 2.0, "quiet": seed == 0}
    return Result(Unit(TASK, "dqn", library, seed), evaluations, about)


def told(seeds, solved, steps, iqm=500.0, low=490.0):
    final = {"iqm": iqm, "low": low, "high": 510.0}
    return {"seeds": seeds, "solved": solved, "steps_to_goal": steps, "final": final}


# The page of learning curves says what was measured, and every policy is on it and in the README.


README = (learning.ROOT / "README.md").read_text()
POLICIES = sorted(
    name
    for name, policy in POLICY_REGISTRY.items()
    if policy.__module__.startswith("ding.policy.") and not name.endswith("_command")
)


def test_the_page_is_made_of_the_results_that_are_kept():
    assert learning.PAGE.read_text() == learning.page()


@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_is_in_the_readme_and_solves_its_task_with_five_seeds_within_its_budget(name):
    assert f"`{name}`" in README
    results = [result for _, kept in learning.families() if name in kept for result in kept[name]]
    assert [result["seed"] for result in results] == [0, 1, 2, 3, 4]
    stop_value, budget = POLICY_TASKS[name].main_config["env"]["stop_value"], POLICY_TASKS[name].budget
    for result in results:
        assert result["solved"] and result["final_return"] >= stop_value
        before = [at[0] for at in result["curve"][:-1]]
        assert all(steps < budget for steps in before), "a round began after the budget"
