"""Which handler answers which method and path.

Routes are found by folder: every module of `colibri_cli.gateway.routes` has `ROUTES`. A path
pattern with fixed text beats one with `{name}` parts; the method is looked for only among routes
of the best pattern, so that a catch-all never hides a 405.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_cli.gateway.http_types import HttpError, Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from colibri_cli.gateway.http_types import ErrorRenderer

ROUTES_PACKAGE: Final = "colibri_cli.gateway.routes"
_PART: Final = re.compile(r"\{([a-z_]+)\}")


def discover_routes(package: str = ROUTES_PACKAGE) -> tuple[Route, ...]:
    """Return the routes of every module of a package, in order of module names."""
    root = importlib.import_module(package)
    names = sorted(info.name for info in pkgutil.iter_modules(root.__path__))
    found: list[Route] = []
    for name in names:
        if name.startswith("_") or name == "base":
            continue
        module = importlib.import_module(f"{package}.{name}")
        routes = getattr(module, "ROUTES", None)
        if not isinstance(routes, tuple):
            raise TypeError(f"{module.__name__} has no tuple ROUTES")
        found.extend(routes)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request, and what its `{name}` parts stand for."""

    route: Route
    values: Mapping[str, str]


class _Pattern:
    """All routes of one path."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.routes: dict[str, Route] = {}
        self.is_catch_all = _PART.match(path[1:]) is not None
        pieces = _PART.split(path)  # text, name, text, name, …, text
        expression = re.escape(pieces[0])
        for index in range(1, len(pieces), 2):
            name, text = pieces[index : index + 2]
            is_last = index == len(pieces) - 2 and not text
            # The last part takes slashes too.
            expression += f"(?P<{name}>{'.+' if is_last else '[^/]+'})" + re.escape(text)
        self.expression = re.compile(expression, re.DOTALL)
        self.rank = (len(pieces[0]), len(path))

    @property
    def allowed(self) -> tuple[str, ...]:
        """Methods that have an answer here."""
        head = ("HEAD",) if "GET" in self.routes else ()
        return tuple(sorted({*self.routes, *head, "OPTIONS"}))


class Router:
    """Finds routes.

    Args:
        routes: All of them.

    Raises:
        ValueError: two routes have the same method and path.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        patterns: dict[str, _Pattern] = {}
        for route in routes:
            pattern = patterns.setdefault(route.path, _Pattern(route.path))
            if route.method in pattern.routes:
                raise ValueError(f"two routes for {route.method} {route.path}")
            pattern.routes[route.method] = route
        self._fixed = {p.path: p for p in patterns.values() if "{" not in p.path}
        self._parents = sorted(self._fixed.values(), key=lambda p: p.rank, reverse=True)
        self._open = sorted(
            (p for p in patterns.values() if "{" in p.path), key=lambda p: p.rank, reverse=True
        )
        self._methods = {m for p in patterns.values() for m in p.allowed}

    def match(self, method: str, path: str) -> Match:
        """Return the route of a request.

        Raises:
            HttpError: 404 without a route, 405 with `Allow` for another method of a known path.
        """
        pattern, values = self._find(path)
        wanted = "GET" if method == "HEAD" and pattern and "HEAD" not in pattern.routes else method
        if pattern is not None and wanted in pattern.routes:
            return Match(pattern.routes[wanted], values)
        if pattern is not None and not pattern.is_catch_all:
            raise _not_allowed(method, path, pattern.allowed)
        if method not in self._methods:
            raise _not_allowed(method, path, tuple(sorted(self._methods)))
        raise HttpError(404, f"there is no {method} {_shown(path)} here", code="not_found")

    def allowed(self, path: str) -> str:
        """Return the methods that a path takes, as `Allow` lists them; of an unknown one, all."""
        pattern, _ = self._find(path)
        return ", ".join(sorted(self._methods) if pattern is None else pattern.allowed)

    def error_renderer(self, path: str) -> ErrorRenderer | None:
        """Return the envelope of failures at a path, known or below a known one."""
        pattern, _ = self._find(path)
        candidates = [pattern] if pattern is not None and not pattern.is_catch_all else []
        candidates += [parent for parent in self._parents if path.startswith(parent.path + "/")]
        for candidate in candidates:
            for route in candidate.routes.values():
                if route.render_error is not None:
                    return route.render_error
        return None

    def _find(self, path: str) -> tuple[_Pattern | None, Mapping[str, str]]:
        if (fixed := self._fixed.get(path)) is not None:
            return fixed, {}
        for pattern in self._open:
            if (found := pattern.expression.fullmatch(path)) is not None:
                return pattern, found.groupdict()
        return None, {}


def _not_allowed(method: str, path: str, allowed: tuple[str, ...]) -> HttpError:
    names = ", ".join(allowed)
    return HttpError(
        405,
        f"{_shown(path)} does not take {method[:20]}; it takes {names}",
        code="method_not_allowed",
        headers={"Allow": names},
    )


def _shown(path: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in path[:100])
