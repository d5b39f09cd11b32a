import pickle
import sys

import numpy as np
import pytest
import torch

from ding.utils.default_helper import SingletonMetaclass
from ding.utils.fast_copy import fastcopy
from ding.utils.import_helper import (
    FakeLink,
    import_module,
    try_import_ceph,
    try_import_link,
    try_import_mc,
    try_import_redis,
    try_import_rediscluster,
)


def test_a_singleton_class_has_one_instance_and_each_subclass_its_own():
    class Base(metaclass=SingletonMetaclass):
        def __init__(self, value):
            self.value = value

    class Child(Base):
        pass

    assert Base(1) is Base(2) and Base.instance.value == 1
    assert Child(3) is Child(4) and Child.instance.value == 3 and Base.instance.value == 1


def test_fastcopy_copies_containers_tensors_and_arrays_and_shares_the_rest():
    shared = object()
    original = {"list": [torch.zeros(2), np.zeros(2)], "shared": shared}
    copied = fastcopy.copy(original)
    original["list"][0] += 1
    original["list"][1] += 1
    original["list"].append(None)
    assert copied["list"][0].tolist() == [0, 0] and copied["list"][1].tolist() == [0, 0] and len(copied["list"]) == 2
    assert copied["shared"] is shared


@pytest.mark.parametrize("form", [list, str], ids=["in a list", "alone"])
def test_import_module_takes_names(form, tmp_path, monkeypatch):
    name = f"some_env_package_{form.__name__}"
    (tmp_path / f"{name}.py").write_text("LOADED = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_module([name] if form is list else name)
    assert sys.modules.pop(name).LOADED


def test_import_module_of_nothing_does_nothing_and_of_an_unknown_name_raises():
    import_module([])
    import_module(None)
    with pytest.raises(ImportError, match="no_such_package"):
        import_module(["no_such_package"])


def test_optional_clients_are_none_where_not_installed(monkeypatch):
    for name in ("ceph", "mc", "redis", "rediscluster", "linklink"):
        monkeypatch.setitem(sys.modules, name, None)
    assert try_import_ceph() is try_import_mc() is try_import_redis() is try_import_rediscluster() is None
    assert isinstance(try_import_link(), FakeLink)


def test_optional_clients_are_the_modules_where_installed(monkeypatch):
    for name in ("redis", "linklink"):
        monkeypatch.setitem(sys.modules, name, pickle)
    assert try_import_redis() is pickle and try_import_link() is pickle


def test_every_exported_name_exists():
    import ding.utils

    assert sorted(set(ding.utils.__all__)) == ding.utils.__all__
    for name in ding.utils.__all__:
        assert getattr(ding.utils, name) is not None
