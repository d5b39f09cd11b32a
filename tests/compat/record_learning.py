"""Record how DI-engine learns from the states and batches of `learner_states.py`, in `original_learning.json`.

Run it in an environment with DI-engine 0.5.3 instead of this package: `python tests/compat/record_learning.py`.
"""

import copy
import json
from pathlib import Path
from typing import Any

import learner_states as states
import torch
from easydict import EasyDict

import ding.policy  # noqa: F401 registers the policies
from ding.utils import POLICY_REGISTRY

PATH = Path(__file__).with_name("original_learning.json")
_MOMENTS = {
    "Adam": ["step", "exp_avg", "exp_avg_sq"],
    "AdamW": ["step", "exp_avg", "exp_avg_sq"],
    "RMSprop": ["step", "square_avg"],
    "SGD": ["momentum_buffer"],
}


def record(name: str) -> dict[str, Any]:
    """Returns the layout of a policy's learner state, and what three learning steps log and change."""
    case = states.CASES[name]
    cls = POLICY_REGISTRY.get(case.policy)
    config = states.set_config(cls.default_config(), case.config)
    policy: Any = cls(EasyDict(config), enable_field=["learn", "collect"])
    layout = _layout(policy)
    if not config.learn.get("auto_alpha", True):
        layout["optimizers"].pop("optimizer_alpha", None)
    state = states.make_state(layout)
    policy.learn_mode.load_state_dict(copy.deepcopy(state))
    networks = {"model": policy._model}
    if hasattr(policy, "_target_model"):
        networks["target_model"] = policy._target_model
        if not layout["has_target"]:  # DI-engine leaves it as it was initialized
            policy._target_model.load_state_dict(copy.deepcopy(state["model"]))
    logs = states.learn(policy, case)
    before = {"target_model": state["model"], **state}
    changes = {key: states.fingerprint(before[key], network.state_dict()) for key, network in networks.items()}
    return {"layout": layout, "logs": logs, "changes": changes}


def _layout(policy: Any) -> dict[str, Any]:
    state = policy.learn_mode.state_dict()
    first: dict[int, int] = {}  # positions by the address of the tensor
    model: dict[str, Any] = {}
    for position, (name, tensor) in enumerate(state["model"].items()):
        is_new = first.setdefault(tensor.data_ptr(), position) == position
        model[name] = list(tensor.shape) if is_new else first[tensor.data_ptr()]
    optimizers = {}
    for optimizer in vars(policy).values():
        if isinstance(optimizer, torch.optim.Optimizer):
            group = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}
            optimizers[_key(policy, optimizer)] = {
                "group": group,
                "moments": _MOMENTS[type(optimizer).__name__],
                "parameters": [first.get(one.data_ptr()) for one in optimizer.param_groups[0]["params"]],
            }
    return {"model": model, "has_target": "target_model" in state, "optimizers": optimizers}


def _key(policy: Any, optimizer: torch.optim.Optimizer) -> str:
    """Returns the key of `optimizer` in the learner state."""
    group = optimizer.param_groups[0]
    rate, group["lr"] = group["lr"], -1.0
    state = policy.learn_mode.state_dict()
    group["lr"] = rate
    return next(key for key, part in state.items() if "param_groups" in part and part["param_groups"][0]["lr"] < 0)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items() if "time" not in str(key)}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    torch.set_num_threads(1)
    found = json.loads(PATH.read_text()) if PATH.exists() else {}
    found |= {name: _rounded(record(name)) for name, case in states.CASES.items() if case.policy in POLICY_REGISTRY}
    lines = [f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}" for name, entry in found.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
