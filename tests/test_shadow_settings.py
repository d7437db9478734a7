"""Which shadows are registered: those that ship, and what the environment says of them."""

from __future__ import annotations

import json

import pytest

from tipbench.errors import BadInput
from tipbench.settings import SHADOW_POLICIES_ENV, ShadowPolicy, shadow_policies

KNOWN = ("egreedy", "egreedy-v2", "linucb", "hybrid", "thompson", "random")
SHIPPED = "egreedy-v2-shadow"


def test_one_shadow_ships_and_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """`egreedy-v2-shadow` is registered, disabled, and no apprentice."""
    monkeypatch.delenv(SHADOW_POLICIES_ENV, raising=False)
    assert shadow_policies(known=KNOWN) == {SHIPPED: ShadowPolicy(policy="egreedy-v2")}


def test_the_environment_changes_and_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a shadow that is there only what differs is named; a new one may run a policy of one's own."""
    said = {SHIPPED: {"enabled": True}, "mine": {"policy": "my.module:made", "apprentice": True}}
    monkeypatch.setenv(SHADOW_POLICIES_ENV, json.dumps(said))
    assert shadow_policies(known=KNOWN) == {
        SHIPPED: ShadowPolicy(policy="egreedy-v2", enabled=True),
        "mine": ShadowPolicy(policy="my.module:made", apprentice=True),
    }


def test_a_registered_shadow_is_enabled_by_its_name() -> None:
    """The command line switches on what is registered, and nothing else."""
    assert shadow_policies(known=KNOWN, enable=[SHIPPED], text="")[SHIPPED].enabled
    with pytest.raises(
        BadInput, match=r"^--shadow: there is no shadow 'egreedy-v2'; did you mean 'egreedy-v2-s"
    ):
        shadow_policies(known=KNOWN, enable=["egreedy-v2"], text="")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "give an object"),
        ('"x"', "give an object"),
        ('{"a": 1}', "shadow 'a': give an object"),
        ('{"a": {}}', '"policy" is missing'),
        ('{"a": {"policy": "linucb", "enable": true}}', "no key 'enable'; did you mean 'enabled'"),
        ('{"a": {"policy": "linucb", "enabled": 1}}', "'enabled' must be true or false, not 1"),
        ('{"a": {"policy": "linucb", "apprentice": "yes"}}', "'apprentice' must be true or false"),
        ('{"a": {"policy": null}}', "'policy' must be a name, not null"),
        ('{"a": {"policy": "linUBC"}}', "no policy 'linUBC'; did you mean 'linucb'"),
        ('{"a": {"policy": "zzz"}}', "no policy 'zzz'; there is egreedy"),
        ('{"a": {"policy": ":x"}}', "no policy ':x'"),
        ('{"a": {"policy": "os:system(1)"}}', "no policy"),
        ('{"linucb": {"policy": "linucb"}}', "call the shadow 'linucb-shadow'"),
        ('{"": {"policy": "linucb"}}', "a name has letters"),
        ('{"a b": {"policy": "linucb"}}', "a name has letters"),
        ('{"a": {"policy": "linucb"}, "a": {"policy": "random"}}', "'a' is written twice"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(text: str, words: str) -> None:
    """The sentence names the variable, the shadow and what to write instead."""
    with pytest.raises(BadInput) as caught:
        shadow_policies(known=KNOWN, text=text)
    assert str(caught.value).startswith(f"{SHADOW_POLICIES_ENV}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
