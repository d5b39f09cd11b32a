"""Each policy has a page: in the nav, with its paper, an example, its curves, and the settings that it reads."""

import re

import pytest

import ding.policy  # noqa: F401  (registers the policies)
from ding.utils import POLICY_REGISTRY
from tests.benchmarks import learning
from tests.docs.test_learning import POLICIES

DOCS = learning.ROOT / "docs"
MARK = "<!-- generated: python docs/generate.py writes what follows -->"
NAMES = [*POLICIES, "sqil"]  # the last is no policy of its own, but a way to train one
REFUSED = {"bc": "serial_pipeline_bc", "dqfd": "serial_pipeline_dqfd", "sqil": "serial_pipeline_sqil"}
REFUSED |= dict.fromkeys(("cql", "discrete_cql", "td3_bc", "iql"), "serial_pipeline_offline")


def page(name):
    return (DOCS / "policies" / f"{name}.md").read_text(encoding="utf-8")


def table(name, chapter):
    return re.findall(r"^\| `([^`]+)` \|", page(name).partition(f"\n## {chapter}\n")[2].partition("\n## ")[0], re.M)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_paper_example_and_curves_and_is_in_the_nav(name):
    by_hand, _, generated = page(name).partition(MARK)
    assert re.search(r"^- \*\*Paper\*\*: .*[12]\d{3},\s+https://\S+", by_hand, re.M | re.S)
    assert all(f"- **{part}**" in by_hand for part in ("Actions", "Use it", "Avoid it"))
    (example,) = re.findall(r"^```python\n(.*?)^```$", by_hand, re.S | re.M)
    way = REFUSED.get(name, "create_policy" if name == "ppg_offpolicy" else f'train("{name}"')
    assert way in "".join(example.split()).replace("train(", "train(") and "from ding" in example
    assert f"(../learning/policies/{name}.svg)" in generated and name in table(name, "Measured")
    assert (learning.ROOT / "mkdocs.yml").read_text(encoding="utf-8").count(f": policies/{name}.md\n") == 1
    assert f"[`{name}`]({name}.md)" in page("index")


def test_the_hand_written_part_fits_on_a_screen_but_for_examples():
    for name in NAMES:
        prose = re.sub(r"^```.*?^```$", "", page(name).partition(MARK)[0], flags=re.S | re.M)
        assert len(prose.splitlines()) <= 32, name


@pytest.mark.parametrize("name", POLICIES)
def test_the_settings_are_those_that_the_policy_reads_and_all_policies_do_not_share(name):
    from ding.policy.base_policy import Policy

    listed, settings = table(name, "Settings"), POLICY_REGISTRY.get(name).settings
    assert len(listed) == len(set(listed)) and "type" not in listed
    assert not {path for path in listed if settings.get(path) == Policy.settings.get(path) and path in settings}
    for path in set(listed) & set(settings):
        assert settings[path].doc != "Accepted for compatibility."
    named = {
        path for path, one in settings.items() if one != Policy.settings.get(path) and not isinstance(one.default, dict)
    }
    left_out = {path for path in named - set(listed) if settings[path].doc != "Accepted for compatibility."}
    assert all(_has_no_choice(settings, path) for path in left_out), left_out


def _has_no_choice(settings, path):
    """Whether there is one value, or the same key in a section."""
    nested = any(other.endswith(f".{path}") for other in settings)
    rule = settings[path].rule
    allowed = "" if rule is None else str(rule(object()))
    return path == "type" or nested or (allowed.startswith("one of ") and "," not in allowed)


@pytest.mark.parametrize("name", POLICIES)
def test_the_table_says_how_a_policy_is_trained(name):
    row = next(line for line in page("index").splitlines() if line.startswith(f"| [`{name}`]"))
    way = REFUSED.get(name) or ("a loop of your own" if name == "ppg_offpolicy" else "train")
    assert way in row.rsplit("|", 2)[1]
    learns = "on-policy" if POLICY_REGISTRY.get(name).default_config().on_policy else "off-policy"
    assert learns in row or way in ("serial_pipeline_bc", "serial_pipeline_offline")


def test_the_reference_lists_each_policy_once_and_no_command_modes():
    listed = re.findall(r"^::: (\S+)$", (DOCS / "reference" / "api" / "policies.md").read_text(encoding="utf-8"), re.M)
    assert len(listed) == len(set(listed))
    for name, cls in POLICY_REGISTRY.items():
        if cls.__module__.startswith("ding.policy."):
            assert (f"{cls.__module__}.{cls.__name__}" in listed) is not name.endswith("_command"), name
