"""DQN: what it learns, how it acts, what it keeps."""

import copy
import functools

import numpy as np
import pytest
import torch
from torch import nn

from ding.model.template.q_learning import DQN
from ding.policy.dqn import DQNPolicy
from ding.torch_utils.network.nn_module import NoiseLinearLayer
from ding.utils.batch_methods import batch_method
from ding.utils.default_helper import one_time_warning
from tests.policy.learning import target_of
from tests.policy.samples import make_batch, make_config, make_sample

OBS = {3: torch.zeros(4), 0: torch.ones(4)}


def make_policy(*fields, seed=0, model=None, **settings):
    torch.manual_seed(seed)
    return DQNPolicy(make_config(**settings), model=model, enable_field=list(fields) or None)


def parameters_of(policy):
    return torch.cat([p.detach().flatten() for p in policy._model.parameters()]).clone()


# --- learn ---


@pytest.mark.parametrize("nstep", [1, 3])
@pytest.mark.parametrize("order", [1, -1])
def test_samples_learn_alike_whether_an_env_tells_its_flags_at_the_last_step_or_at_each(nstep, order):
    def losses(tells_always, end):
        policy = make_policy("learn", "collect", nstep=nstep)
        torch.manual_seed(1)
        transitions = [make_sample(i, done=False) for i in range(5)]
        for transition in transitions if tells_always else ():
            transition.update(dict.fromkeys(end, False))
        transitions[-1].update(end, done=True)
        samples = policy.collect_mode.get_train_sample(transitions)[::order]
        return policy.learn_mode.forward(samples)["priority"]

    cut_off, over = {"terminated": False, "truncated": True}, {"terminated": True, "truncated": False}
    bootstrapped, not_bootstrapped = losses(True, cut_off), losses(True, over)
    assert bootstrapped != pytest.approx(not_bootstrapped)
    for tells_always in (False, True):
        assert losses(tells_always, cut_off) == losses(tells_always, {"truncated": True}) == bootstrapped
        assert losses(tells_always, over) == losses(tells_always, {}) == not_bootstrapped


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.bfloat16, 0.05)])
def test_a_model_of_another_dtype_learns_and_acts_in_it(dtype, tolerance):
    torch.manual_seed(0)
    model = DQN(4, 2)
    other = copy.deepcopy(model).to(dtype)
    data = make_batch(16)
    policies = [make_policy("learn", "eval", model=one) for one in (model, other)]
    infos = [policy.learn_mode.forward(copy.deepcopy(data)) for policy in policies]
    assert infos[1]["total_loss"] == pytest.approx(infos[0]["total_loss"], rel=tolerance)
    assert infos[1]["priority"] == pytest.approx(infos[0]["priority"], rel=tolerance, abs=tolerance)
    assert {parameter.dtype for parameter in other.parameters()} == {dtype}
    assert policies[1].eval_mode.forward(OBS)[0]["logit"].dtype is dtype


def test_a_model_given_another_dtype_later_acts_in_it():
    policy = make_policy("collect", "eval")
    policy.collect_mode.forward(OBS, eps=0.0)
    policy._model.double()
    assert policy.eval_mode.forward(OBS)[3]["logit"].dtype is torch.float64


def test_a_learning_step_is_double_dqn_with_adam():
    policy = make_policy("learn", learn__target_update_freq=1000)
    q = copy.deepcopy(policy._model)
    target = copy.deepcopy(q)
    optimizer = torch.optim.Adam(q.parameters(), lr=0.001)
    for step in range(3):
        torch.manual_seed(step)
        data = make_batch(16)
        obs, next_obs = (torch.stack([s[key] for s in data]) for key in ("obs", "next_obs"))
        reward, action = (torch.cat([s[key] for s in data]) for key in ("reward", "action"))
        done = torch.tensor([float(s["done"]) for s in data])
        with torch.no_grad():
            best = q(next_obs)["logit"].argmax(-1)
            target_q = target(next_obs)["logit"]
            y = reward + 0.97 * (1 - done) * target_q.gather(1, best[:, None]).squeeze(1)
        logit = q(obs)["logit"]
        error = (logit.gather(1, action[:, None]).squeeze(1) - y) ** 2
        optimizer.zero_grad()
        error.mean().backward()
        optimizer.step()
        output = policy.learn_mode.forward(data)
        assert output["total_loss"] == pytest.approx(error.mean().item(), rel=1e-4)
        assert output["priority"] == pytest.approx(error.tolist(), rel=1e-3, abs=1e-6)
        assert output["q_value"] == pytest.approx(logit.mean().item(), rel=1e-4, abs=1e-6)
        assert output["target_q_value"] == pytest.approx(target_q.mean().item(), rel=1e-4, abs=1e-6)
        assert output["cur_lr"] == 0.001
    expected = torch.cat([p.detach().flatten() for p in q.parameters()])
    assert torch.allclose(parameters_of(policy), expected, atol=1e-5)


def test_extra_keys_of_any_kind_do_not_disturb():
    make_policy("learn").learn_mode.forward(make_batch(4, info=object(), nothing=None))


def test_importance_weights_scale_the_loss_but_not_the_priority():
    data = make_batch(8)
    plain = make_policy("learn", priority=True).learn_mode.forward(data)
    weighted = make_policy("learn", priority=True, priority_IS_weight=True).learn_mode.forward(data)
    assert weighted["total_loss"] == pytest.approx(plain["total_loss"] / 2)
    assert weighted["priority"] == pytest.approx(plain["priority"])


def test_nstep_samples_learn_with_their_own_discount():
    policy = make_policy("learn", "collect", nstep=3, discount_factor=0.5)
    samples = policy.collect_mode.get_train_sample(make_batch(4, done=False))
    assert [s["value_gamma"] for s in samples] == [0.125, 0.125, 0.25, 0.5]
    output = policy.calculate_priority(samples)
    model = policy._model
    for sample, priority in zip(samples, output["priority"], strict=True):
        with torch.no_grad():
            value = model(sample["next_obs"][None])["logit"].max()
            target = (sample["reward"] * torch.tensor([1.0, 0.5, 0.25])).sum() + sample["value_gamma"] * value
            error = (model(sample["obs"][None])["logit"][0, sample["action"]] - target) ** 2
        assert priority == pytest.approx(error.item(), rel=1e-4, abs=1e-6)


def test_priorities_are_calculated_without_learning():
    policy = make_policy("learn")
    data = make_batch(8)
    before = parameters_of(policy)
    priority = policy.calculate_priority(data)["priority"]
    assert torch.equal(parameters_of(policy), before)
    assert policy.learn_mode.forward(data)["priority"] == pytest.approx(priority)
    assert policy._model.training


def test_priorities_are_calculated_in_evaluation_mode():
    class Dropping(DQN):
        def forward(self, x):
            return super().forward(nn.functional.dropout(x, 0.5, self.training))

    policy = make_policy("learn", model=Dropping(4, 2))
    data = make_batch(8)
    policy.learn_mode.forward(data)  # now both networks are in training mode
    assert policy.calculate_priority(data) == policy.calculate_priority(data)


def test_calculating_priorities_may_count_for_the_target():
    policy = make_policy("learn", learn__target_update_freq=2)
    policy.learn_mode.forward(make_batch(8))
    target_before = target_of(policy).state_dict()
    policy.calculate_priority(make_batch(8), update_target_model=True)
    model = policy._model.state_dict()
    assert any(not torch.equal(target_before[key], model[key]) for key in model)
    assert is_target_equal(policy)


def is_target_equal(policy):
    model = policy._model.state_dict()
    return all(torch.equal(value, model[key]) for key, value in target_of(policy).state_dict().items())


@pytest.mark.differs(
    "`cur_lr` of DQN, and of PPO without a schedule, is the learning rate that the optimizer began with",
    "the one in use",
)
def test_the_learning_rate_in_use_is_told():
    policy = make_policy("learn")
    policy._optimizer.param_groups[0]["lr"] = 0.25
    assert policy.learn_mode.forward(make_batch(4))["cur_lr"] == 0.25


def test_the_target_is_copied_every_so_many_iterations():
    policy = make_policy("learn", learn__target_update_freq=3)
    equal = []
    for _ in range(6):
        policy.learn_mode.forward(make_batch(4))
        equal.append(is_target_equal(policy))
    assert equal == [False, False, True, False, False, True]


@pytest.mark.differs(
    "a DQN user's `target_theta` never takes effect",
    "it does once the frequency is None, or where only theta was changed",
)
@pytest.mark.parametrize("settings", [{"learn__target_update_freq": None}, {}])
def test_a_users_theta_takes_effect(settings):
    policy = make_policy("learn", learn__target_theta=0.25, **settings)
    before = target_of(policy).state_dict()
    policy.learn_mode.forward(make_batch(8))
    model = policy._model.state_dict()
    for key, value in target_of(policy).state_dict().items():
        assert torch.allclose(value, 0.75 * before[key] + 0.25 * model[key], atol=1e-6)


def test_the_default_theta_counts_once_the_frequency_is_none():
    policy = make_policy("learn", learn__target_update_freq=None)
    before = target_of(policy).state_dict()["head.A.0.0.weight"]
    policy.learn_mode.forward(make_batch(8))
    new, model = target_of(policy).state_dict(), policy._model.state_dict()
    expected = 0.995 * before + 0.005 * model["head.A.0.0.weight"]
    assert torch.allclose(new["head.A.0.0.weight"], expected, atol=1e-7)


def test_a_users_frequency_wins_when_both_are_set_and_that_is_warned_of(caplog):
    one_time_warning.cache_clear()
    policy = make_policy("learn", learn__target_theta=0.25, learn__target_update_freq=1)
    policy.learn_mode.forward(make_batch(8))
    assert is_target_equal(policy)
    assert caplog.messages == [
        "DQNPolicy: learn.target_theta = 0.25 has no effect beside learn.target_update_freq = 1; set the one that is "
        "not wanted to None"
    ]


def test_one_way_to_update_the_target_alone_is_not_warned_of(caplog):
    one_time_warning.cache_clear()
    make_policy("learn", learn__target_update_freq=7)
    make_policy("learn", learn__target_theta=0.25)
    make_policy("learn", learn__target_theta=None)
    assert caplog.messages == []


def test_one_way_to_update_the_target_is_needed():
    with pytest.raises(RuntimeError, match="target_theta"):
        make_policy("learn", learn__target_theta=None, learn__target_update_freq=None)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_stored_observations_of_any_dtype_are_learnt_from(dtype):
    data = make_batch(8)
    for sample in data:
        sample["obs"], sample["next_obs"] = sample["obs"].to(dtype), sample["next_obs"].to(dtype)
    as_float = [{**s, "obs": s["obs"].float(), "next_obs": s["next_obs"].float()} for s in data]
    loss = make_policy("learn").learn_mode.forward(data)["total_loss"]
    assert loss == make_policy("learn").learn_mode.forward(as_float)["total_loss"]


def make_masked(mask):
    return {"observation": torch.rand(4), "action_mask": torch.tensor(mask)}


def test_masked_actions_do_not_count_for_the_target():
    model = DQN(4, 2, dueling=False)
    with torch.no_grad():
        model.head.Q[-1][0].weight.zero_()
        model.head.Q[-1][0].bias.copy_(torch.tensor([1.0, 5.0]))
    data = [make_sample(0, obs=make_masked([1, 0]), next_obs=make_masked([1, 0]), done=False, reward=torch.zeros(1))]
    output = make_policy("learn", model=model, discount_factor=0.5).learn_mode.forward(data)
    assert output["priority"] == pytest.approx([(1.0 - 0.5 * 1.0) ** 2])
    assert output["q_value"] == pytest.approx(3.0)


@pytest.mark.parametrize("mask", [[[1, 0], [1, 0]], [1, 0, 1, 0], (torch.tensor([1, 0]), torch.tensor([1, 0]))])
def test_masked_actions_of_no_head_count_for_the_target(mask):
    model = DQN(4, [2, 2], dueling=False)
    with torch.no_grad():
        for head in model.head.pred:
            head.Q[-1][0].weight.zero_()
            head.Q[-1][0].bias.copy_(torch.tensor([1.0, 5.0]))
    obs = {"observation": torch.rand(4), "action_mask": torch.tensor(mask) if isinstance(mask, list) else mask}
    data = [make_sample(0, obs=obs, next_obs=obs, done=False, reward=torch.zeros(1), action=torch.zeros(2))]
    output = make_policy("learn", model=model, discount_factor=0.5).learn_mode.forward(data)
    assert output["priority"] == pytest.approx([(1.0 - 0.5 * 1.0) ** 2])


def test_multi_discrete_actions_learn_the_mean_over_their_heads():
    policy = make_policy("learn", "collect", model__action_shape=[2, 3])
    heads = [torch.tensor([1]), torch.tensor([2])]
    data = make_batch(6, action=heads)
    stacked = [{**sample, "action": torch.tensor([1, 2])} for sample in data]
    error = policy.calculate_priority(data)["priority"]
    assert policy.calculate_priority(stacked)["priority"] == error
    model = policy._model
    for sample, priority in zip(data, error, strict=True):
        with torch.no_grad():
            q, next_q = (model(sample[key][None])["logit"] for key in ("obs", "next_obs"))
        expected = 0.0
        for k in range(2):
            target = sample["reward"] + 0.97 * (not sample["done"]) * next_q[k].max()
            expected += (q[k][0, heads[k]] - target).item() ** 2 / 2
        assert priority == pytest.approx(expected, rel=1e-4, abs=1e-6)
    output = policy.learn_mode.forward(data)
    assert output["total_loss"] == pytest.approx(sum(error) / 6, rel=1e-5)
    assert output["priority"] == pytest.approx(error)


def test_the_loss_falls():
    policy = make_policy("learn")
    data = make_batch(16)
    losses = [policy.learn_mode.forward(data)["total_loss"] for _ in range(60)]
    assert losses[-1] < losses[0] / 5


@pytest.mark.parametrize("update", [{"learn__target_update_freq": 2}, {"learn__target_update_freq": None}])
@pytest.mark.parametrize("wrap", [nn.DataParallel, functools.partial(torch.compile, backend="eager")])
def test_a_model_that_is_wrapped_later_learns_as_before(update, wrap):
    plain, wrapped = (make_policy("learn", **update) for _ in range(2))
    wrapped._model = wrap(wrapped._model)
    for _ in range(3):
        data = make_batch(4)
        assert wrapped.learn_mode.forward(data) == plain.learn_mode.forward(data)
        assert wrapped.calculate_priority(data, update_target_model=True) == plain.calculate_priority(
            data, update_target_model=True
        )
    targets = [policy.learn_mode.state_dict()["target_model"] for policy in (plain, wrapped)]
    assert list(targets[0]) == list(targets[1])
    assert all(torch.equal(*pair) for pair in zip(*(target.values() for target in targets), strict=True))


def test_modules_are_switched_to_training_and_back():
    policy = make_policy(model__dropout=0.5)
    policy.eval_mode.forward(OBS)
    assert not policy._model.training
    policy.learn_mode.forward(make_batch(4))
    assert policy._model.training
    assert policy._target_net.training
    policy.collect_mode.forward(OBS, eps=0.0)
    assert not policy._model.training


# --- options of learning ---


def test_huber_is_linear_beyond_one():
    data = make_batch(8, reward=torch.tensor([3.0]))
    squared = make_policy("learn").learn_mode.forward(data)["priority"]
    output = make_policy("learn", learn__criterion="huber").learn_mode.forward(data)
    expected = [error / 2 if error < 1 else error**0.5 - 0.5 for error in squared]
    assert output["priority"] == pytest.approx(expected, rel=1e-5)
    assert output["total_loss"] == pytest.approx(sum(expected) / 8, rel=1e-5)


def test_gradients_are_clipped_before_the_step():
    policy = make_policy("learn", learn__grad_clip_type="clip_norm", learn__grad_clip_value=0.01)
    norms = []
    policy._optimizer.register_step_pre_hook(
        lambda optimizer, *_: norms.append(sum(p.grad.pow(2).sum() for p in optimizer.param_groups[0]["params"]) ** 0.5)
    )
    policy.learn_mode.forward(make_batch(8))
    assert [norm.item() for norm in norms] == [pytest.approx(0.01, rel=1e-3)]


def test_the_learning_rate_falls_along_its_schedule_which_is_saved():
    schedule = {"epoch_num": 4, "min_lr_lambda": 0.5}
    policy = make_policy("learn", learn__lr_scheduler=schedule, learn__learning_rate=0.1)
    rates = [policy.learn_mode.forward(make_batch(4))["cur_lr"] for _ in range(3)]
    state = copy.deepcopy(policy.learn_mode.state_dict())
    assert list(state) == ["model", "target_model", "optimizer", "lr_scheduler", "target_update_count"]
    other = make_policy("learn", learn__lr_scheduler=schedule, learn__learning_rate=0.1)
    other.learn_mode.load_state_dict(state)
    rates += [other.learn_mode.forward(make_batch(4))["cur_lr"] for _ in range(4)]
    assert rates == pytest.approx([0.1, 0.0875, 0.075, 0.0625, 0.05, 0.05, 0.05])


def test_a_state_from_before_the_schedule_begins_it():
    state = make_policy("learn").learn_mode.state_dict()
    policy = make_policy("learn", learn__lr_scheduler={"epoch_num": 2, "min_lr_lambda": 0.0})
    policy.learn_mode.load_state_dict(state)
    assert [policy.learn_mode.forward(make_batch(4))["cur_lr"] for _ in range(3)] == pytest.approx([0.001, 0.0005, 0])


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"learn__criterion": "hubert"}, "learn.criterion = 'hubert'"),
        ({"learn__grad_clip_type": "norm"}, "learn.grad_clip_type = 'norm'"),
        ({"learn__grad_clip_type": "clip_norm"}, "clip_value"),
        ({"learn__lr_scheduler": {"epoch_num": 0, "min_lr_lambda": 0.1}}, "learn.lr_scheduler.epoch_num = 0"),
    ],
)
def test_options_of_learning_are_checked(setting, text):
    with pytest.raises(ValueError, match=text):
        make_policy("learn", **setting)


# --- noise ---


def noise_of(policy):
    layers = [layer for layer in policy._model.modules() if isinstance(layer, NoiseLinearLayer)]
    return layers, [layer.weight_eps.clone() for layer in layers]


def test_noise_is_resampled_for_learning_kept_for_collecting_and_off_for_evaluating():
    policy = make_policy(noisy_net=True, model__noise=True)
    layers, start = noise_of(policy)
    assert len(layers) == 4
    policy.collect_mode.forward(OBS, eps=0.0)
    assert all(layer.enable_noise for layer in layers)
    assert all(torch.equal(a, b) for a, b in zip(start, noise_of(policy)[1], strict=True))
    policy.eval_mode.forward(OBS)
    assert not any(layer.enable_noise for layer in layers)
    policy.learn_mode.forward(make_batch(4))
    assert all(layer.enable_noise for layer in layers)
    assert not any(torch.equal(a, b) for a, b in zip(start, noise_of(policy)[1], strict=True))


def test_evaluation_is_free_of_noise():
    policy = make_policy(noisy_net=True, model__noise=True)
    first = policy.eval_mode.forward(OBS)
    for layer in noise_of(policy)[0]:
        layer.reset_noise()
        layer.enable_noise = True
    assert torch.equal(policy.eval_mode.forward(OBS)[0]["logit"], first[0]["logit"])


def test_noisy_layers_added_later_are_switched_too():
    policy = make_policy(noisy_net=True, model__noise=True)
    policy.learn_mode.forward(make_batch(4))
    for net in (policy._model, policy._target_net):
        net.head = DQN(4, 2, noise=True).head
    layers, start = noise_of(policy)
    policy.collect_mode.forward(OBS, eps=0.0)
    assert all(layer.enable_noise for layer in layers)
    policy.eval_mode.forward(OBS)
    assert not any(layer.enable_noise for layer in layers)
    policy.learn_mode.forward(make_batch(4))
    assert all(layer.enable_noise for layer in layers)
    assert not any(torch.equal(a, b) for a, b in zip(start, noise_of(policy)[1], strict=True))


def test_without_noisy_net_noise_stays_off():
    policy = make_policy(model__noise=True)
    policy.collect_mode.forward(OBS, eps=0.0)
    policy.learn_mode.forward(make_batch(4))
    assert not any(layer.enable_noise for layer in noise_of(policy)[0])


# --- acting ---


def test_outputs_keep_ids_order_and_documented_shapes():
    policy = make_policy("collect", "eval")
    for output in (policy.collect_mode.forward(OBS, eps=0.5), policy.eval_mode.forward(OBS)):
        assert list(output) == [3, 0]
        for out in output.values():
            assert out["action"].shape == (1,)
            assert out["action"].dtype == torch.int64
            assert out["logit"].shape == (2,)
            assert not out["logit"].requires_grad


def test_evaluation_is_greedy():
    policy = make_policy("eval")
    for out in policy.eval_mode.forward(OBS).values():
        assert out["action"].item() == out["logit"].argmax().item()


def test_the_stacked_outputs_are_those_of_the_envs():
    rows = np.random.RandomState(0).rand(3, 4).astype(np.float32)
    policy = make_policy("eval")
    stacked = batch_method(policy.eval_mode.forward)(rows, [5, 1, 2])
    assert stacked["action"].shape == (3,) and stacked["logit"].shape == (3, 2)
    output = policy.eval_mode.forward(dict(zip([5, 1, 2], rows, strict=True)))
    assert list(output) == [5, 1, 2]
    for row, out in enumerate(output.values()):
        assert torch.equal(out["logit"], stacked["logit"][row])
        assert torch.equal(out["action"], stacked["action"][row : row + 1])


def test_full_epsilon_explores_per_env():
    policy = make_policy("collect")
    observations = {env_id: torch.zeros(4) for env_id in range(200)}
    actions = [out["action"].item() for out in policy.collect_mode.forward(observations, eps=1.0).values()]
    assert 60 < sum(actions) < 140
    greedy = {out["action"].item() for out in policy.collect_mode.forward(observations, eps=0.0).values()}
    assert len(greedy) == 1
    mixed = [out["action"].item() for out in policy.collect_mode.forward(observations, eps=0.5).values()]
    assert 20 < sum(action != next(iter(greedy)) for action in mixed) < 80


def test_collecting_needs_an_epsilon():
    with pytest.raises(TypeError, match="eps"):
        make_policy("collect").collect_mode.forward(OBS)


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int64])
def test_observations_of_any_dtype_are_acted_on(dtype):
    policy = make_policy("eval")
    rows = np.arange(8).reshape(2, 4)
    expected = policy.eval_mode.forward({0: torch.arange(4.0), 1: torch.arange(4.0, 8.0)})
    as_batch = batch_method(policy.eval_mode.forward)(rows.astype(dtype), [0, 1])
    as_dict = policy.eval_mode.forward(dict(enumerate(rows.astype(dtype))))
    assert torch.equal(as_batch["logit"][1], expected[1]["logit"])
    assert torch.equal(as_dict[1]["logit"], expected[1]["logit"])


def test_an_observation_of_one_number_is_acted_on_and_learnt_from():
    policy = make_policy("learn", "eval", model__obs_shape=1)
    rows = np.zeros((2, 1), dtype=np.float32)
    assert policy.eval_mode.forward(dict(enumerate(rows)))[1]["logit"].shape == (2,)
    assert batch_method(policy.eval_mode.forward)(rows, [0, 1])["logit"].shape == (2, 2)
    output = policy.learn_mode.forward(make_batch(4, obs=torch.zeros(1), next_obs=torch.zeros(1)))
    assert len(output["priority"]) == 4


def test_multi_discrete_actions_are_one_tensor_per_head():
    policy = make_policy("collect", "eval", model__action_shape=[2, 3])
    for output in (policy.collect_mode.forward(OBS, eps=0.5), policy.eval_mode.forward(OBS)):
        assert isinstance(output[3]["action"], tuple)
        assert [action.shape for action in output[3]["action"]] == [(1,), (1,)]


def test_masked_actions_are_never_taken():
    policy = make_policy("collect", "eval")
    observations = {env_id: make_masked([0, 1] if env_id % 2 else [1, 0]) for env_id in range(20)}
    for output in (policy.collect_mode.forward(observations, eps=0.7), policy.eval_mode.forward(observations)):
        assert [out["action"].item() for out in output.values()] == [env_id % 2 for env_id in range(20)]


def test_dict_observations_reach_a_model_of_their_own():
    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return {"logit": self.layer(x["a"] + x["b"])}

    policy = make_policy("learn", "collect", model=TwoInputs())
    obs = {"a": torch.rand(2), "b": np.ones(2, dtype=np.uint8)}
    out = policy.collect_mode.forward({0: obs, 1: obs}, eps=0.0)
    assert out[1]["logit"].shape == (2,)
    stored = {"a": torch.rand(2), "b": torch.ones(2, dtype=torch.uint8)}
    policy.learn_mode.forward(make_batch(4, obs=stored, next_obs=stored))


# --- samples and state ---


def test_single_step_samples_are_the_transitions():
    data = make_batch(3)
    assert make_policy("collect").collect_mode.get_train_sample(data) is data


def test_samples_may_be_unrolled():
    samples = make_policy("collect", collect__unroll_len=2).collect_mode.get_train_sample(make_batch(4))
    assert [len(sample["obs"]) for sample in samples] == [2, 2]


@pytest.mark.differs(
    "a learner that resumes from a checkpoint counts the iterations to the next copy of its target network from 0",
    "the count is part of the state",
)
def test_a_learner_that_goes_on_copies_its_target_at_the_same_iterations():
    policy, other = (make_policy("learn", learn__target_update_freq=4, seed=seed) for seed in (0, 1))
    for _ in range(3):
        policy.learn_mode.forward(make_batch(4))
    other.learn_mode.forward(make_batch(4))
    other.learn_mode.load_state_dict(copy.deepcopy(policy.learn_mode.state_dict()))
    equal = []
    for _ in range(5):
        other.learn_mode.forward(make_batch(4))
        equal.append(is_target_equal(other))
    assert equal == [True, False, False, False, True]


def test_a_state_without_the_count_of_updates_leaves_it():
    policy = make_policy("learn", learn__target_update_freq=2)
    policy.learn_mode.forward(make_batch(4))
    state = copy.deepcopy(policy.learn_mode.state_dict())
    del state["target_update_count"]
    policy.learn_mode.load_state_dict(state)
    policy.learn_mode.forward(make_batch(4))
    assert is_target_equal(policy)


def test_modes_share_one_model():
    policy = make_policy()
    before = policy.eval_mode.forward(OBS)[0]["logit"].clone()
    policy.learn_mode.forward(make_batch(8))
    assert not torch.equal(policy.eval_mode.forward(OBS)[0]["logit"], before)


def test_observations_travel_to_the_device_as_they_are_and_become_floats_there(monkeypatch):
    policy = make_policy("collect")
    moved = []
    for module in ("common_utils", "training_step"):
        monkeypatch.setattr(
            f"ding.policy.{module}.to_device", lambda item, device: moved.append((device, item)) or item
        )
    policy._cuda, policy._device = True, "cuda:0"
    policy.collect_mode.forward({0: np.zeros(4, np.uint8), 1: np.ones(4, np.uint8)}, eps=0.0)
    (device, obs), (back, _) = moved
    assert (device, obs.dtype, back) == ("cuda:0", torch.uint8, "cpu")
