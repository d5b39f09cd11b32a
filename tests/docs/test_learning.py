"""The page of learning curves says what was measured, and every policy is on it and in the README."""

import pytest

import ding.policy  # noqa: F401  (registers the policies)
from ding.utils import POLICY_REGISTRY
from tests.benchmarks import learning
from tests.benchmarks.learning_tasks import TASKS

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
    stop_value, budget = TASKS[name].main_config["env"]["stop_value"], TASKS[name].budget
    for result in results:
        assert result["solved"] and result["final_return"] >= stop_value
        before = [at[0] for at in result["curve"][:-1]]
        assert all(steps < budget for steps in before), "a round began after the budget"
