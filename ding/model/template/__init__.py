"""Whole models, registered by name."""

from importlib import import_module

from ding.utils.import_helper import lazy_names

_NAMES = {
    "bc": "ContinuousBC DiscreteBC",
    "q_learning": "BDQ C51DQN DQN DRQN FQF IQN QRDQN RainbowDQN SQN",
    "qac": "ContinuousQAC ContinuousQVAC DiscreteQAC QAC QACDIST",
    "vac": "ACER MAVAC PG PPG VAC",
}

_MODULES = {name: f"ding.model.template.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)
__getattr__ = lazy_names(__name__, _MODULES)

# Models are registered when their module is imported.
for _module in _NAMES:
    import_module(f"{__name__}.{_module}")
