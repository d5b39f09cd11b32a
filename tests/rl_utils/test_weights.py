"""Weights of samples: every loss takes [B] and [B, 1] alike, and refuses other shapes."""

import numpy as np
import pytest
import torch

from ding.rl_utils import (
    a2c_data,
    a2c_error,
    a2c_error_continuous,
    dist_1step_td_data,
    dist_1step_td_error,
    dist_nstep_td_data,
    dist_nstep_td_error,
    fqf_nstep_td_data,
    fqf_nstep_td_error,
    ppg_data,
    ppg_joint_error,
    ppo_data,
    ppo_data_continuous,
    ppo_error,
    ppo_error_continuous,
    q_1step_td_data,
    q_1step_td_error,
    q_nstep_td_data,
    q_nstep_td_error,
    q_nstep_td_error_with_rescale,
    q_v_1step_td_data,
    q_v_1step_td_error,
    v_1step_td_data,
    v_1step_td_error,
    v_nstep_td_data,
    v_nstep_td_error,
)

B, N, A = 4, 3, 2
WEIGHT = torch.tensor([0.5, 2.0, 0.0, 1.5])


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


ACTION = torch.tensor([0, 2, 1, 1])
AGENT_ACTION = torch.tensor([[0, 1], [2, 2], [1, 0], [0, 0]])
DONE = torch.tensor([0.0, 1.0, 0.0, 0.0])
Q, Q_AGENTS, DIST, QUANTILES = draw(B, N), draw(B, A, N), draw(B, N, 5).softmax(-1), draw(B, 6, N)
DIST_AGENTS = draw(B, A, N, 5).softmax(-1)
GAUSSIAN = {"mu": draw(B, A), "sigma": torch.rand(B, A) + 0.5}

LOSSES = {
    "q_1step": lambda w: [q_1step_td_error(q_1step_td_data(Q, 2 * Q, ACTION, ACTION, draw(B), DONE, w), 0.9)],
    "q_nstep": lambda w: q_nstep_td_error(q_nstep_td_data(Q, 2 * Q, ACTION, ACTION, draw(2, B), DONE, w), 0.9, 2)[:1],
    "q_nstep_agents": lambda w: q_nstep_td_error(
        q_nstep_td_data(Q_AGENTS, 2 * Q_AGENTS, AGENT_ACTION, AGENT_ACTION, draw(2, B, A), DONE, w), 0.9, 2
    )[:1],
    "q_nstep_rescaled": lambda w: q_nstep_td_error_with_rescale(
        q_nstep_td_data(Q, 2 * Q, ACTION, ACTION, draw(2, B), DONE, w), 0.9, 2
    )[:1],
    "v_1step": lambda w: v_1step_td_error(v_1step_td_data(draw(B), -draw(B), draw(B), DONE, w), 0.9)[:1],
    "v_1step_agents": lambda w: v_1step_td_error(v_1step_td_data(draw(B, A), -draw(B, A), draw(B), None, w), 0.9)[:1],
    "v_nstep": lambda w: v_nstep_td_error(v_nstep_td_data(draw(B), -draw(B), draw(2, B), DONE, w, None), 0.9, 2)[:1],
    "q_v_1step": lambda w: q_v_1step_td_error(q_v_1step_td_data(Q, draw(B), ACTION, draw(B), DONE, w), 0.9)[:1],
    "dist_1step": lambda w: [
        dist_1step_td_error(dist_1step_td_data(DIST, DIST, ACTION, ACTION, draw(B), DONE, w), 0.9, -1, 1, 5)
    ],
    "dist_nstep": lambda w: dist_nstep_td_error(
        dist_nstep_td_data(DIST, DIST, ACTION, ACTION, draw(2, B), DONE, w), 0.9, -1, 1, 5, 2
    )[:1],
    "dist_nstep_agents": lambda w: dist_nstep_td_error(
        dist_nstep_td_data(DIST_AGENTS, DIST_AGENTS, AGENT_ACTION, AGENT_ACTION, draw(2, B), DONE, w), 0.9, -1, 1, 5, 2
    )[:1],
    "fqf": lambda w: fqf_nstep_td_error(
        fqf_nstep_td_data(QUANTILES, 2 * QUANTILES, ACTION, ACTION, draw(2, B), DONE, torch.rand(B, 6), w), 0.9, 2
    )[:1],
    "ppo": lambda w: ppo_error(ppo_data(Q, 2 * Q, ACTION, draw(B), -draw(B), draw(B), 3 * draw(B), w))[0][:3],
    "ppo_agents": lambda w: ppo_error(
        ppo_data(Q_AGENTS, 2 * Q_AGENTS, AGENT_ACTION, draw(B, A), -draw(B, A), 2 * draw(B, A), 3 * draw(B, A), w)
    )[0][:3],
    "ppo_continuous": lambda w: ppo_error_continuous(
        ppo_data_continuous(GAUSSIAN, GAUSSIAN, draw(B, A), draw(B), -draw(B), draw(B), 3 * draw(B), w)
    )[0][:3],
    "ppg": lambda w: ppg_joint_error(ppg_data(Q, 2 * Q, ACTION, draw(B), -draw(B), draw(B), w))[:1],
    "a2c": lambda w: a2c_error(a2c_data(Q, ACTION, draw(B), -draw(B), draw(B), w)),
    "a2c_continuous": lambda w: a2c_error_continuous(a2c_data(GAUSSIAN, draw(B, A), draw(B), -draw(B), draw(B), w)),
}


def values(losses):
    return [loss.item() for loss in losses]


@pytest.fixture(params=LOSSES)
def losses_of(request):
    def losses(weight):
        torch.manual_seed(0)
        return values(LOSSES[request.param](weight))

    return losses


@pytest.mark.differs(
    "multiplies each error by the weights of all samples if weights are [B, 1], and fails on [B] in "
    "`dist_1step_td_error`",
    "accepts [B] and [B, 1]",
)
def test_a_weight_is_one_number_for_each_sample_whether_it_has_an_axis_of_its_own_or_not(losses_of):
    weighted = losses_of(WEIGHT)
    for same in (WEIGHT.unsqueeze(1), WEIGHT.double().numpy(), WEIGHT.unsqueeze(1).numpy(), WEIGHT.tolist()):
        assert losses_of(same) == weighted
    # A loss is linear in the weights of its samples.
    each = [losses_of(row) for row in torch.diag(WEIGHT)]
    assert [sum(column) for column in zip(*each, strict=True)] == pytest.approx(weighted, abs=1e-5)
    assert weighted != pytest.approx(losses_of(None))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, B), (B, 2), (B, B), (B, 1, 1)])
def test_a_weight_of_another_shape_is_refused(losses_of, shape):
    for weight in (torch.ones(shape), np.ones(shape)):
        with pytest.raises(ValueError, match="weight has shape"):
            losses_of(weight)
