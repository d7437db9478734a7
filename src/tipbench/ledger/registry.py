"""MLflow's registries in plain values: prompts, and models whose versions carry tags and aliases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tipbench.errors import BadInput, LedgerUnreachable, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tipbench.ledger.mlflow_store import Store

_PAGE = 500
# A server takes no source that it could mistake for a file or for another host.
_SOURCE = "tipbench:/"


@dataclass(frozen=True, kw_only=True)
class VersionRow:
    version: int
    tags: Mapping[str, str]


class Registry:
    """The registries of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def uri(self) -> str:
        """The store's address without credentials."""
        return self._store.address.public

    def prompt_tags(self, name: str, *, tag: str) -> set[str]:
        """The values that versions of a prompt have under the tag; empty where there is no such prompt."""
        try:
            versions = self._store.call(lambda client: client.search_prompt_versions(name))
        except NotFound:
            return set()
        return {version.tags[tag] for version in versions if tag in version.tags}

    def register_prompt(self, name: str, template: str, tags: Mapping[str, str]) -> None:
        self._store.call(lambda client: client.register_prompt(name, template, tags=dict(tags)))

    def ensure_model(self, name: str, *, description: str) -> None:
        """Make the registered model unless it is there; two who make it at once are no error."""
        if self._is_there(name):
            return
        try:
            self._store.call(
                lambda client: client.create_registered_model(name, description=description),
                perhaps_done=lambda: self._is_there(name) or None,
            )
        except (BadInput, LedgerUnreachable):
            if not self._is_there(name):
                raise

    def _is_there(self, name: str) -> bool:
        return self._aliases(name) is not None

    def alias(self, name: str, alias: str) -> int | None:
        """The version that an alias stands for, None where there is none, or no such model."""
        found = (self._aliases(name) or {}).get(alias)
        return None if found is None else int(found)

    def _aliases(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(self._store.call(lambda client: client.get_registered_model(name).aliases))
        except NotFound:
            return None

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Point an alias at a version; NotFound where there is none of that number."""
        self._store.call(lambda client: client.set_registered_model_alias(name, alias, str(version)))

    def add_version(self, name: str, tags: Mapping[str, str], *, mark: str) -> VersionRow:
        """A new version with its tags, in one step. The tag `mark` is found nowhere else.

        By that tag a version is recognised whose making came through while the answer to it got lost.
        """
        return self._store.call(
            lambda client: _row(
                client.create_model_version(name, _SOURCE + name, tags=dict(tags), await_creation_for=0)
            ),
            perhaps_done=lambda: self._marked(name, mark, tags[mark]),
        )

    def _marked(self, name: str, tag: str, value: str) -> VersionRow | None:
        return next((row for row in self.versions(name) if row.tags.get(tag) == value), None)

    def version(self, name: str, number: int) -> VersionRow:
        return _row(self._store.call(lambda client: client.get_model_version(name, str(number))))

    def versions(self, name: str) -> list[VersionRow]:
        """All versions of a model, oldest first; `name` must hold no quotes."""
        found = self._store.pages(
            lambda client, token: client.search_model_versions(
                f"name='{name}'", max_results=_PAGE, page_token=token
            )
        )
        return sorted((_row(version) for version in found), key=lambda row: row.version)


def _row(version: Any) -> VersionRow:  # noqa: ANN401 - MLflow's own class
    return VersionRow(version=int(version.version), tags=dict(version.tags))
