import pytest

import ding.utils
from ding.utils import registry_factory
from ding.utils.registry_factory import Registry
from tests.programs import printed


def test_register_as_decorator_names_by_argument_or_by_class_name():
    registry = Registry()

    @registry.register("short")
    class First:
        pass

    @registry.register()
    class Second:
        pass

    assert registry.get("short") is First and registry["Second"] is Second
    assert list(registry.query()) == ["short", "Second"]


def test_register_as_call_returns_none_and_needs_a_name():
    registry = Registry()
    assert registry.register(module_name="n", module=int) is None
    assert registry.build("n", "7") == 7
    with pytest.raises(AssertionError, match="module_name"):
        registry.register(module=int)


def test_a_taken_name_is_refused_unless_overwritten_on_purpose():
    registry = Registry()
    registry.register("n", int)
    with pytest.raises(AssertionError, match="'n' is taken by <class 'int'>"):
        registry.register("n", float)
    registry.register("n", float, force_overwrite=True)
    assert registry.get("n") is float


def test_an_unknown_type_is_a_key_error_that_names_it_and_the_known_ones():
    registry = Registry({"known": int})
    for call in (registry.get, registry.build):
        with pytest.raises(KeyError, match="unknown type 'x'; registered: known"):
            call("x")
    with pytest.raises(KeyError, match="registered: nothing"):
        Registry().get("x")


def test_a_misspelt_type_is_named_with_the_nearest():
    with pytest.raises(KeyError, match="did you mean 'dqn'"):
        Registry({"dqn": int, "dqn_command": int, "ppo": int}).get("dqnn")
    with pytest.raises(KeyError) as e:
        Registry({"dqn": int, "bc": int}).get("absent")
    assert "did you mean" not in str(e.value)


@pytest.mark.differs(
    "reports a `KeyError` inside a constructor as an unknown type",
    "raises it unchanged; an unknown type is named with the known ones",
)
def test_a_key_error_inside_the_constructor_reaches_the_caller_as_it_is():
    def constructor(cfg):
        return cfg["missing"]

    registry = Registry({"thing": constructor})
    with pytest.raises(KeyError) as caught:
        registry.build("thing", {})
    assert caught.value.args == ("missing",)


def test_query_details_needs_tracing():
    with pytest.raises(AssertionError, match="DIENGINEREGTRACE=ON"):
        Registry().query_details()


def test_query_details_gives_file_and_line_when_traced(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from ding.utils.registry_factory import Registry\n"
        "registry = Registry()\n"
        "@registry.register('a')\n"
        "class A: pass\n"
        "registry.register('b', int)\n"
        "print(dict(registry.query_details(['b'])))\n"
        "assert registry.query_details()['a'][0] == __file__\n"
    )
    assert printed(script, DIENGINEREGTRACE="ON").strip() == str({"b": (str(script), 5)})


def test_every_registry_is_exported_and_the_command_line_knows_each():
    names = [name for name in vars(registry_factory) if name.endswith("_REGISTRY")]
    assert len(names) == len(registry_factory.registries) == 21
    for name in names:
        assert getattr(ding.utils, name) is getattr(registry_factory, name)
    assert len({id(registry) for registry in registry_factory.registries.values()}) == 21
    assert registry_factory.registries["message_queue"] is registry_factory.MQ_REGISTRY
