"""Epsilon schedules and noise processes."""

import math

import pytest
import torch

from ding.rl_utils.exploration import GaussianNoise, OUNoise, create_noise_generator, get_epsilon_greedy_fn


def test_exponential_epsilon_has_fallen_by_e_after_its_decay():
    epsilon = get_epsilon_greedy_fn(0.95, 0.1, 10000)
    assert epsilon(0) == pytest.approx(0.95)
    assert epsilon(10000) == pytest.approx(0.85 / math.e + 0.1)
    assert epsilon(10**9) == pytest.approx(0.1)


def test_linear_epsilon_arrives_and_stays():
    epsilon = get_epsilon_greedy_fn(1.0, 0.2, 100, "linear")
    assert [epsilon(x) for x in (0, 50, 100, 1000)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_gaussian_noise_has_its_moments():
    torch.manual_seed(0)
    noise = create_noise_generator("gauss", {"mu": 2.0, "sigma": 0.5})((10000,))
    assert noise.shape == (10000,)
    assert noise.mean().item() == pytest.approx(2.0, abs=0.05)
    assert noise.std().item() == pytest.approx(0.5, abs=0.05)


def test_noise_can_be_made_to_decay():
    noise = GaussianNoise(sigma=1.0)
    noise.sigma = 0.0
    assert noise.sigma == 0.0
    assert noise((3,)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.differs("returns the increment of the process from `OUNoise`", "returns its value")
def test_ou_noise_is_the_value_of_the_process_and_not_its_step():
    noise = create_noise_generator("ou", {"mu": 1.0, "sigma": 0.0, "theta": 1.0, "dt": 0.5})
    assert [noise((1,)).item() for _ in range(3)] == [0.5, 0.75, 0.875]


def test_ou_noise_returns_to_its_start_on_reset_and_on_a_new_start():
    noise = OUNoise(mu=0.0, sigma=0.0, theta=0.5, dt=1.0, x0=4.0)
    assert [noise((1,)).item() for _ in range(2)] == [2.0, 1.0]
    noise.reset()
    assert noise((1,)).item() == 2.0
    noise.x0 = 8.0
    assert noise.x0 == 8.0
    assert noise((1,)).item() == 4.0


def test_ou_noise_takes_a_mean_for_one_step_and_starts_anew_for_a_new_shape():
    noise = OUNoise(mu=0.0, sigma=0.0, theta=1.0, dt=1.0, x0=None)
    assert noise((2,), mu=3.0).tolist() == [3.0, 3.0]
    assert noise((3,)).tolist() == [0.0, 0.0, 0.0]


def test_unknown_noise_is_refused_by_name():
    with pytest.raises(KeyError):
        create_noise_generator("pink", {})
