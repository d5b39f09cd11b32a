"""Generators of known state: what a policy draws next is what a twin draws."""

from typing import Any

import numpy as np
from torch import nn

from ding.model.wrapper.model_wrappers import IModelWrapper
from ding.policy import Policy
from ding.rl_utils.exploration import BaseNoise


def rng_of(seed: int) -> np.random.Generator:
    """A generator, as `reseed` leaves them."""
    return np.random.Generator(np.random.SFC64(seed))


def reseed(owner: Any, seed: int) -> None:
    """Set all generators of a policy, a wrapper, a noise or a network to the state of `rng_of(seed)`."""
    for value in vars(owner).values():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = rng_of(seed).bit_generator.state
        elif isinstance(value, (Policy, IModelWrapper, BaseNoise)):
            reseed(value, seed)
        elif isinstance(value, nn.Module):
            for part in value.modules():
                reseed_module(part, seed)
    if isinstance(owner, nn.Module):
        for part in owner.modules():
            reseed_module(part, seed)


def reseed_module(module: nn.Module, seed: int) -> None:
    """Set the generator of a module, without its parts."""
    if "rng" in vars(module):
        module.rng.bit_generator.state = rng_of(seed).bit_generator.state
