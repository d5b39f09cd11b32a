"""What a store of weights promises, over each transport."""

import os

import pytest
import torch


class PolicyStoreContract:
    """For a fixture `opened` that opens the same store, and weights that no other test has."""

    def test_weights_are_read_once_per_version(self, opened):
        writer, reader = opened(), opened()
        with pytest.raises(FileNotFoundError):
            reader.read("once")
        writer.write("once", {"model": {"w": torch.ones(2)}, "iter": 1})
        version = reader.read("once")
        assert version.state["iter"] == 1 and version.state["model"]["w"].tolist() == [1, 1]
        assert reader.read("once", version.token) is None
        writer.write("once", {"model": {"w": torch.zeros(2)}, "iter": 2})
        newer = reader.read("once", version.token)
        assert newer.state["iter"] == 2 and newer.token != version.token

    def test_a_writer_that_begins_anew_replaces_what_is_there(self, opened):
        opened().write("anew", {"iter": 9})
        opened().write("anew", {"iter": 0})
        assert opened().read("anew").state == {"iter": 0}

    def test_names_stay_in_the_root(self, opened):
        store = opened()
        store.write(os.path.join(store.root, "path"), {"iter": 1})
        assert store.read("path").state == {"iter": 1}
        for name in ("../a", "/tmp/a", f"{store.root}/../a", "a/b", ".a"):
            for act in (store.read, lambda name: store.write(name, {})):
                with pytest.raises(ValueError):
                    act(name)
