"""Leagues keep their weights relative to the current folder."""

from tests.own_folder import own_folder as own_folder
