"""Where this installation's recipes come from: documents of the project and its tenant, its folder, the bundled ones.

Documents below ``recipes/`` are closed to plans and tools, so only people and the recipe that writes recipes put some
there: ``recipes/<name>.yaml``, and ``recipes/prompts/<name>-<part>.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from engines.recipes.cascade import SYSTEM_PART, TENANT_PROJECT, BundledRecipes, FolderRecipes, RecipeSource
from engines.recipes.model import recipe_key
from models.store import documents
from models.store.database import Database
from tasks.settings import Settings

FOLDER = "recipes/"
"""Where recipes are among a project's documents."""
Sources = Callable[[str, str], Sequence[RecipeSource]]
"""The cascade of a tenant and project, read anew with each call."""


def recipe_sources(settings: Settings, database: Database | None = None) -> Sources:
    """The cascade: documents of project and tenant when there is a database; ``TENANT/PROJECT``, ``TENANT/_tenant``
    and the top of ``recipes_dir``; the bundled recipes."""

    def sources(tenant: str, project: str) -> list[RecipeSource]:
        found: list[RecipeSource] = []
        if database is not None:
            shelf = _Shelf(database, tenant, project)
            found = [
                DocumentRecipes(shelf, project, layer="project", label=f"project {tenant}/{project}: "),
                DocumentRecipes(shelf, TENANT_PROJECT, layer="tenant", label=f"tenant {tenant}: "),
            ]
        root = settings.recipes_dir
        if root is not None:
            folders = (root / tenant / project, root / tenant / TENANT_PROJECT, root)
            found += [FolderRecipes(folder) for folder in folders]
        return [*found, BundledRecipes()]

    return sources


def held(sources: Sources) -> Sources:
    """``sources`` that read each text once: for a batch of submissions that are one moment."""
    return cache(sources)


class _Shelf:
    """The recipe documents of a project and its tenant, each read once: one look at both takes one statement."""

    def __init__(self, database: Database, tenant: str, project: str) -> None:
        self._database = database
        self._tenant = tenant
        self._projects = (project, TENANT_PROJECT)
        self._asked: set[str] = set()
        self._found: dict[tuple[str, str], str] = {}

    def get(self, project: str, paths: Sequence[str]) -> list[str | None]:
        new = [path for path in paths if path not in self._asked]
        if new:
            self._found.update(documents.texts(self._database, self._tenant, self._projects, new))
            self._asked.update(new)
        return [self._found.get((project, path)) for path in paths]

    def paths(self, project: str) -> list[str]:
        found = documents.list_documents(self._database, self._tenant, project, prefix=FOLDER, limit=10_000)
        return [each.path for each in found]


class DocumentRecipes:
    """One layer of documents. Contents are kept as long as the source is."""

    def __init__(self, shelf: _Shelf, project: str, *, layer: str, label: str) -> None:
        self.layer = layer
        self._shelf = shelf
        self._project = project
        self._label = label

    def read(self, name: str) -> tuple[str, str] | None:
        path = recipe_path(name)
        # The prompt that nearly every recipe may have comes along, so that most recipes take a single statement.
        text, _ = self._shelf.get(self._project, (path, _prompt_path(name, SYSTEM_PART)))
        return None if text is None else (text, self._label + path)

    def read_prompts(self, name: str, parts: Sequence[str]) -> Mapping[str, tuple[str, str]]:
        paths = [_prompt_path(name, part) for part in parts]
        texts = self._shelf.get(self._project, paths)
        found = zip(parts, paths, texts, strict=True)
        return {part: (text, self._label + path) for part, path, text in found if text is not None}

    def names(self) -> Collection[str]:
        paths = [path.removeprefix(FOLDER) for path in self._shelf.paths(self._project)]
        return sorted({recipe_key(path.removesuffix(".yaml")) for path in paths if _is_recipe(path)})


def recipe_path(name: str) -> str:
    """The document that holds the recipe ``name`` (normalised)."""
    return f"{FOLDER}{name}.yaml"


def _is_recipe(path: str) -> bool:
    return path.endswith(".yaml") and "/" not in path


def _prompt_path(name: str, part: str) -> str:
    return f"{FOLDER}prompts/{name}-{part}.md"
