import pytest

from ding.worker.transport.stores import check_plain_name, name_under


@pytest.mark.parametrize("name", ["policy_1", "env_0_a-b.c", "x" * 200, "ünï"])
def test_plain_names_pass(name):
    assert check_plain_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", ".hidden", "a\0b", "a\nb", "x" * 201],
)
def test_names_that_could_lead_elsewhere_are_refused(name):
    with pytest.raises(ValueError, match="is not allowed: it must be a plain name"):
        check_plain_name(name)


@pytest.mark.parametrize("name", [None, 3, b"x", ["x"]])
def test_a_name_is_a_str(name):
    with pytest.raises(ValueError, match="a file name must be a str"):
        check_plain_name(name)
    with pytest.raises(ValueError, match="a file name must be a str"):
        name_under("root", name)


def test_a_path_under_the_root_is_its_name():
    assert name_under("./exp/data", "exp/data/x") == name_under("./exp/data", "x") == "x"
    assert name_under(".", "./x") == "x"


@pytest.mark.parametrize(
    "path", ["exp/data/../x", "exp/data/sub/x", "exp/database/x", "/exp/data/x", "exp/data/..", "exp/data/"]
)
def test_a_path_elsewhere_is_refused(path):
    with pytest.raises(ValueError):
        name_under("exp/data", path)


def test_relative_and_absolute_paths_to_the_root_are_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert name_under(str(tmp_path), "./chunk") == name_under(".", str(tmp_path / "chunk")) == "chunk"
    with pytest.raises(ValueError, match="must be a plain name"):
        name_under(str(tmp_path / "data"), "./chunk")
