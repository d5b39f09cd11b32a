"""PPG: its two phases, its samples, what it keeps."""

import copy

import numpy as np
import pytest
import torch

from ding.policy import PPGOffPolicy
from ding.rl_utils import (
    get_gae_with_default_last_value,
    ppg_data,
    ppg_joint_error,
    ppo_policy_data,
    ppo_policy_error,
    ppo_value_data,
    ppo_value_error,
)
from ding.utils import set_pkg_seed
from ding.utils.data.samples import Samples, Table
from tests.generators import reseed, rng_of
from tests.policy.learning import model_of, set_paths

AUX = {"aux_value_loss", "auxiliary_loss", "behavioral_cloning_loss"}


def make_policy(*fields, seed=0, **settings):
    cfg = PPGOffPolicy.default_config()
    cfg.model.update(obs_shape=3, action_shape=2, encoder_hidden_size_list=[8, 64])
    cfg.learn.update(batch_size=4, aux_freq=3, aux_train_epoch=2, aux_bc_weight=0.7)
    set_paths(cfg, settings)
    set_pkg_seed(seed, use_cuda=False)
    return PPGOffPolicy(cfg, enable_field=list(fields) or None)


def make_samples(number, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "obs": torch.rand(3, generator=generator),
            "action": torch.tensor([i % 2]),
            "logit": torch.rand(2, generator=generator),
            "value": torch.rand(1, generator=generator),
            "adv": torch.randn(1, generator=generator),
            "reward": torch.rand(1, generator=generator),
            "done": False,
            "buffer_name": ["policy", "value"],
        }
        for i in range(number)
    ]


def batch_of(samples):
    batch = {key: torch.stack([s[key] for s in samples]) for key in ("obs", "logit")}
    return {**batch, **{key: torch.cat([s[key] for s in samples]) for key in ("action", "value", "adv")}}


def parameters_of(part):
    return torch.cat([p.detach().flatten() for p in part.parameters()]).clone()


class Twin:
    """The two networks and their optimizers, trained by hand."""

    def __init__(self, policy):
        self.model = copy.deepcopy(model_of(policy))
        self.ac = torch.optim.Adam(self.model.actor_critic.parameters(), lr=0.001)
        self.aux = torch.optim.Adam(self.model.aux_critic.parameters(), lr=0.001)

    def step(self, optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("adv_norm", [False, True])
def test_the_policy_phase_is_ppo_with_a_critic_of_its_own(adv_norm):
    policy = make_policy("learn", learn__adv_norm=adv_norm)
    twin = Twin(policy)
    one, other = make_samples(6, 0), make_samples(6, 1)
    batch, values = batch_of(one), batch_of(other)
    adv = (batch["adv"] - batch["adv"].mean()) / (batch["adv"].std() + 1e-8) if adv_norm else batch["adv"]
    logit = twin.model(batch["obs"], mode="compute_actor")["logit"]
    loss, info = ppo_policy_error(ppo_policy_data(logit, batch["logit"], batch["action"], adv, None, None), 0.2)
    value = twin.model(values["obs"], mode="compute_critic")["value"]
    returns = values["value"] + values["adv"]
    value_loss = ppo_value_error(ppo_value_data(value, values["value"], returns, None), 0.2)
    policy_total = loss.policy_loss - 0.01 * loss.entropy_loss
    twin.step(twin.ac, policy_total)
    value_loss = 0.5 * value_loss
    twin.step(twin.aux, value_loss)

    result = policy.learn_mode.forward({"policy": one, "value": other})
    expected = {
        "policy_loss": loss.policy_loss.item(),
        "value_loss": value_loss.item(),
        "entropy_loss": loss.entropy_loss.item(),
        "policy_adv_abs_max": adv.abs().max().item(),
        "total_loss": (policy_total + value_loss).item(),
        "approx_kl": info.approx_kl,
        "clipfrac": info.clipfrac,
        "policy_cur_lr": 0.001,
        "value_cur_lr": 0.001,
    }
    assert result == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert set(policy.learn_mode.monitor_vars()) == (expected.keys() - {"total_loss"}) | AUX
    assert torch.allclose(parameters_of(model_of(policy)), parameters_of(twin.model), atol=1e-6)


def test_the_auxiliary_phase_distils_values_and_keeps_the_policy():
    policy = make_policy("learn", learn__aux_freq=2)
    batches = [make_samples(4, seed) for seed in (1, 2)]
    policy.learn_mode.forward({"policy": make_samples(4), "value": batches[0]})
    # What the second call does before its auxiliary phase:
    before = copy.deepcopy(policy)
    before._cfg.learn.aux_freq = 100
    assert not AUX & before.learn_mode.forward({"policy": make_samples(4), "value": batches[1]}).keys()
    twin = Twin(before)
    twin.ac.load_state_dict(before._optimizer_ac.state_dict())
    twin.aux.load_state_dict(before._optimizer_aux_critic.state_dict())
    memory = batch_of(batches[0] + batches[1])
    returns = memory["value"] + memory["adv"]
    old = twin.model(memory["obs"], mode="compute_actor")["logit"].detach()
    rng, losses = rng_of(0), []
    for _ in range(2):
        order = torch.from_numpy(rng.permutation(8))
        for rows in order.split(4):
            output = twin.model(memory["obs"][rows], mode="compute_actor_critic")
            rest = memory["value"][rows], returns[rows], None
            joint = ppg_joint_error(ppg_data(output["logit"], old[rows], None, output["value"], *rest), 0.2)
            twin.step(twin.ac, joint.auxiliary_loss + 0.7 * joint.behavioral_cloning_loss)
            value = twin.model(memory["obs"][rows], mode="compute_critic")["value"]
            value_loss = ppo_value_error(ppo_value_data(value, *rest), 0.2)
            twin.step(twin.aux, value_loss)
            losses.append([value_loss.item(), *(part.item() for part in joint)])
    reseed(policy, 0)
    result = policy.learn_mode.forward({"policy": make_samples(4), "value": batches[1]})
    names = ("aux_value_loss", "auxiliary_loss", "behavioral_cloning_loss")
    assert [result[name] for name in names] == pytest.approx(np.mean(losses, 0).tolist(), rel=1e-3, abs=1e-6)
    assert torch.allclose(parameters_of(model_of(policy)), parameters_of(twin.model), atol=1e-5)


def test_an_auxiliary_phase_follows_every_so_many_iterations_and_forgets_its_batches():
    policy = make_policy("learn")
    calls = [
        policy.learn_mode.forward(dict.fromkeys(("policy", "value"), make_samples(5))).keys() >= AUX for _ in range(7)
    ]
    assert calls == [False, False, True, False, False, True, False]
    assert len(policy.learn_mode.state_dict()["aux_memories"]) == 1


@pytest.mark.parametrize("as_columns", [False, True])
@pytest.mark.parametrize(("end", "number"), [({}, 5), ({"done": True}, 6), ({"done": True, "truncated": True}, 5)])
def test_samples_have_an_advantage_and_the_names_of_both_buffers(end, number, as_columns):
    policy = make_policy("collect")
    episode = [{key: s[key] for key in s.keys() - {"adv", "buffer_name"}} for s in make_samples(6)]
    episode[-1].update(end)
    for transition in episode[:-1]:
        transition.update(dict.fromkeys(end, False))
    expected = get_gae_with_default_last_value(copy.deepcopy(episode), bool(end), 0.99, 0.95)
    samples = policy.collect_mode.get_train_sample(Samples(Table.of(episode)) if as_columns else episode)
    assert len(samples) == number and isinstance(samples, Samples) == as_columns
    assert [sample["adv"] for sample in samples] == [sample["adv"] for sample in expected]
    assert all(sample["buffer_name"] == ["policy", "value"] for sample in samples)
    assert policy.collect_mode.get_train_sample([]) == []
