"""Recipes: configs that are found by policy and env."""

import ast
import json
import re
import warnings

import pytest

from ding import train
from ding.config import compile_config
from ding.entry.experiment import with_command_mode
from ding.entry.recipes import FOLDER, MEASURED, all_recipes, find_recipe, recipe_named
from tests.programs import ding

RECIPES = all_recipes()
NAMES = [recipe.name for recipe in RECIPES]
# The package that an env needs, by the beginning of its id.
PACKAGES = {"LunarLander": "Box2D", "MinAtar": "minatar", "Pong": "envpool"}
PACKAGES |= dict.fromkeys(("HalfCheetah", "Hopper", "Walker2d", "Ant", "Swimmer", "Humanoid"), "mujoco")
# Less of everything, by the last part of the key.
SMALL = {"random_collect_size": 40, "n_sample": 32, "batch_size": 8, "update_per_collect": 2, "epoch_per_collect": 1}


def skip_without(env_id):
    package = next((name for start, name in PACKAGES.items() if env_id.startswith(start)), None)
    if package is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Box2D crashes where its warning at import is an error
            pytest.importorskip(package)


def shrink(section):
    for key, value in section.items():
        if isinstance(value, dict):
            shrink(value)
        elif key in SMALL and value > SMALL[key]:
            section[key] = SMALL[key]


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_a_recipe_is_data_with_a_name_that_begins_with_its_policy(recipe):
    docstring, *statements = ast.parse(recipe.path.read_text(encoding="utf-8")).body
    assert isinstance(docstring.value.value, str)
    assert [statement.targets[0].id for statement in statements] == [
        *("envs", "env_steps", "main_config", "create_config")
    ]
    for statement in statements:
        ast.literal_eval(statement.value)
    assert recipe.name.startswith(f"{recipe.policy}_") and recipe.summary.endswith(".")
    assert find_recipe(recipe.policy, recipe.configs[0].env.env_id).name == recipe.name


@pytest.mark.parametrize("recipe", RECIPES, ids=NAMES)
def test_a_recipe_compiles_and_trains(recipe):
    env_id = recipe.configs[0].env.env_id
    skip_without(env_id)
    main, create = recipe.configs
    compiled = compile_config(main, auto=True, create_cfg=with_command_mode(create), save_cfg=False, strict_config=True)
    assert compiled.policy.type == f"{recipe.policy}_command"
    main, create = recipe.configs
    shrink(main)
    with open("small.py", "w", encoding="utf-8") as file:
        file.write(f"main_config = {json_like(main)}\ncreate_config = {json_like(create)}\n")
    words = ["train", "small.py", "--train-iter", "3", "--set", "env.n_evaluator_episode=1"]
    words += ["--set", "env.evaluator_env_num=1", "--set", "env.max_episode_steps=50", "--exp-name", "run"]
    if recipe.policy in ("ppo", "a2c"):
        words += ["--set", f"policy.collect.n_sample={4 * main.env.collector_env_num}"]
    ding(*words)
    with open("run/result.json", encoding="utf-8") as file:
        assert json.load(file)["train_iter"] >= 3


def json_like(config):
    return repr(json.loads(json.dumps(config)))


@pytest.mark.parametrize(
    ("policy", "env_id", "name"),
    [
        ("dqn", "CartPole-v1", "dqn_cartpole"),
        ("dqn", "Acrobot-v1", "dqn_classic_control"),
        ("ppo", "CartPole-v1", "ppo_classic_control"),
        ("sac", "Walker2d-v5", "sac_mujoco"),
        ("c51", "CartPole-v1", None),
        ("ppo", "Taxi-v3", None),
        ("dqn", None, None),
    ],
)
def test_the_recipe_for_a_policy_and_an_env(policy, env_id, name):
    found = find_recipe(policy, env_id)
    assert (None if found is None else found.name) == name


QUICK = {"iterations": 1, "eval_episodes": 1, "batch_size": 8, "n_epochs": 1}


def test_train_takes_the_recipe_and_says_so(caplog, capsys):
    training = train("ppo", "CartPole-v1", num_envs=2, n_steps=8, learning_rate=0.01, **QUICK)
    main, create = training.config
    recipe = recipe_named("ppo_classic_control").configs
    assert training.recipe == "ppo_classic_control" and create == recipe[1]
    expected = {**recipe[0].policy.learn, "learning_rate": 0.01, "batch_size": 8, "epoch_per_collect": 1}
    assert main.policy.learn == expected
    assert main.env == {
        "env_id": "CartPole-v1", "collector_env_num": 2, "evaluator_env_num": 1, "n_evaluator_episode": 1,
    }  # fmt: skip
    assert main.policy.collect.n_sample == 16 and main.policy.collect.gae_lambda == 0.95
    assert "Recipe: ppo_classic_control (PPO on classic control" in capsys.readouterr().err


def test_recipes_are_listed_with_policy_envs_and_what_was_measured():
    lines = ding("list", "recipes").splitlines()
    assert lines[0] == f"Available recipes: {len(all_recipes())}, in {FOLDER}"
    reached = {recipe.name: [f"{env}: {what}" for env, what in recipe.measured.items()] for recipe in all_recipes()}
    expected = [[r.name, r.policy, " ".join(r.envs), "; ".join(reached[r.name])] for r in all_recipes()]
    assert [re.split(r"\s{2,}", line) for line in lines[3:]] == expected


def test_what_was_measured_belongs_to_envs_of_its_recipe():
    known = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert known.keys() <= set(NAMES)
    for name, outcomes in known.items():
        for env_id in outcomes:
            assert find_recipe(recipe_named(name).policy, env_id).name == name
