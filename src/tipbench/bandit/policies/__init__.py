"""The policies that can be asked for by name; one file each."""

from __future__ import annotations

import json
from functools import partial
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tipbench.bandit.features import FEATURES
from tipbench.bandit.policies.egreedy import EpsilonGreedy
from tipbench.bandit.policies.hybrid import Hybrid
from tipbench.bandit.policies.linucb import LinUCB
from tipbench.bandit.policies.thompson import Thompson
from tipbench.bandit.policies.uniform import Uniform
from tipbench.errors import BadInput, TipbenchError
from tipbench.suite.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from tipbench.bandit.policy import Policy

_MAKERS: dict[str, Callable[..., Policy]] = {
    "egreedy": EpsilonGreedy,
    "egreedy-v2": partial(EpsilonGreedy, name="egreedy-v2", features="v2"),
    "linucb": LinUCB,
    "hybrid": Hybrid,
    "thompson": Thompson,
    "random": Uniform,
}
NAMES = tuple(_MAKERS)
_CONTRACT = 1


def make(spec: str, **parameters: Any) -> Policy:  # noqa: ANN401 - checked by each policy
    """The policy of that name, or what `package.module:factory` makes; the parameters are keywords."""
    if ":" in spec:
        return _called(spec, _factory(spec), parameters)
    if spec not in _MAKERS:
        raise BadInput(
            f"there is no policy '{spec}'{did_you_mean(spec, NAMES) or '.'} There are {', '.join(NAMES)}; "
            "one of your own is named as package.module:factory"
        )
    known = _parameter_names(spec)
    for name in parameters:
        if name not in known:
            raise BadInput(
                f"policy '{spec}' has no parameter '{name}'{did_you_mean(name, known) or '.'} "
                f"It has {', '.join(known) or 'none'}"
            )
    return _MAKERS[spec](**parameters)


def version(policy: Policy) -> str:
    """A short name of all that decides how a policy behaves: with another one it may behave otherwise."""
    kind = type(policy)
    edition = getattr(policy, "EDITION", 0)
    said = [
        kind.__module__,
        kind.__qualname__,
        edition,
        policy.name,
        policy.features,
        dict(policy.parameters),
    ]
    digest = blake2b(json.dumps(said, sort_keys=True, default=repr).encode(), digest_size=4).hexdigest()
    return f"{_CONTRACT}-{digest}"


def _parameter_names(spec: str) -> list[str]:
    return list(_MAKERS[spec]().parameters)


def _factory(spec: str) -> Callable[..., Policy]:
    module, _, name = spec.partition(":")
    try:
        factory = getattr(import_module(module), name)
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise BadInput(
            f"policy '{spec}' cannot be loaded ({error}): name it as package.module:factory"
        ) from error
    if not callable(factory):
        raise BadInput(f"policy '{spec}' is not something that can be called to make a policy")
    made: Callable[..., Policy] = factory
    return made


def _called(spec: str, factory: Callable[..., Policy], parameters: dict[str, Any]) -> Policy:
    try:
        policy = factory(**parameters)
    except TipbenchError:
        raise
    except Exception as error:  # it may be anybody's code
        said = f"{type(error).__name__}: {error}"
        raise BadInput(f"policy '{spec}' cannot be made with {sorted(parameters)}: {said}") from error
    features = getattr(policy, "features", None)
    if features not in FEATURES:
        raise BadInput(
            f"policy '{spec}' reads the features {features!r}; there are {', '.join(FEATURES)}, and a policy "
            "says in 'features' which it reads"
        )
    return policy
