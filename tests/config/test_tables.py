"""Each class that reads a config has one table: every key has a meaning, every default is allowed."""

import pytest

import ding.league
import ding.worker.adapter
import ding.worker.collector.marine_parallel_collector
import ding.worker.collector.zergling_parallel_collector
import ding.worker.coordinator.one_vs_one_parallel_commander  # noqa: F401  registers the commanders
from ding.config.topics import MAIN_SETTINGS
from ding.config.utils import SYSTEM_SETTINGS
from ding.envs import DingEnvWrapper
from ding.envs.env.gymnasium_env import GymnasiumEnv
from ding.envs.env.pettingzoo_env import PettingZooEnv
from ding.utils.config_helper import NO_DEFAULT, Configurable, settings_of
from ding.utils.default_helper import Scheduler
from ding.utils.registry_factory import registries
from ding.worker.adapter import LearnerAggregator
from ding.worker.collector.comm.comm_collector import CommCollector
from ding.worker.coordinator.base_serial_commander import BaseSerialCommander
from ding.worker.coordinator.coordinator import Coordinator
from ding.worker.learner.comm.comm_learner import CommLearner
from ding.worker.transport.ray.ray_settings import RAY_SETTINGS

KINDS = (
    *("learner", "serial_collector", "parallel_collector", "serial_evaluator", "buffer", "env_manager", "commander"),
    *("league", "comm_learner", "comm_collector"),
)
REGISTERED = {
    cls
    for kind in KINDS
    for cls in (registries[kind].get(name) for name in list(registries[kind]))
    if cls.__module__.startswith("ding.")
}
OTHERS = (DingEnvWrapper, GymnasiumEnv, PettingZooEnv, Scheduler, LearnerAggregator, CommCollector, CommLearner)
CLASSES = sorted({*REGISTERED, *OTHERS, Coordinator, BaseSerialCommander}, key=lambda cls: cls.__name__)
TABLES = [
    *[pytest.param(settings_of(cls), id=cls.__name__) for cls in CLASSES],
    *[pytest.param(table, id=name) for name, table in (("main", MAIN_SETTINGS), ("system", SYSTEM_SETTINGS))],
    pytest.param(RAY_SETTINGS, id="ray"),
]
# Keys that every section may have.
UNIVERSAL = ("type", "import_names")


@pytest.mark.parametrize("table", TABLES)
def test_each_key_has_a_meaning_and_each_default_is_allowed(table):
    keys = [path for path in table if path not in UNIVERSAL]
    assert [path for path in keys if not table[path].doc.endswith(".")] == []
    with_rules = [path for path in keys if table[path].rule is not None and table[path].default is not NO_DEFAULT]
    assert [path for path in with_rules if table[path].rule(table[path].default) is not None] == []


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if issubclass(cls, Configurable)], ids=lambda cls: cls.__name__)
def test_the_default_config_is_that_of_the_table(cls):
    defaults = cls.default_config()
    assert defaults.pop("cfg_type") == f"{cls.__name__}Dict"
    assert defaults == settings_of(cls).config()
