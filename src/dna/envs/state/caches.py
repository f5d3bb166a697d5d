"""Caches of the program, which may hold only what can be computed again.

A dict that is called a cache, or a function with `functools.cache`, may grow while environments
are stepped. Whether what is in it can be computed again is seen in a forked copy: there, caches
are put back to what they held at the start, and environments that continue from a checkpoint
must put in what those of the run did.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dna.envs.state.watched_values import watched

#: Name of a cache → what was put in, by key.
Inserted = dict[str, dict[Any, Any]]


class Caches:
    """The caches that the code of an environment uses, and what they held at first."""

    def __init__(self) -> None:
        self.dicts: dict[str, tuple[dict[Any, Any], dict[Any, Any]]] = {}
        self.functions: dict[str, tuple[Any, object]] = {}

    def add(self, dicts: Mapping[str, dict[Any, Any]], functions: Mapping[str, Any]) -> None:
        """Remember what caches hold that were not known yet."""
        for name, cache in dicts.items():
            known, _ = self.dicts.get(name, (None, None))
            if known is not cache:  # one that replaces another begins empty
                self.dicts[name] = (cache, dict(cache) if known is None else {})
        for name, function in functions.items():
            self.functions.setdefault(name, (function, function.cache_info()))

    def grown(self) -> list[str]:
        """Names of the dicts that hold more than at first."""
        return [name for name, (cache, first) in self.dicts.items() if cache.keys() - first]

    def contents(self) -> Inserted:
        """A shallow copy of what the dicts hold."""
        return {name: dict(cache) for name, (cache, _) in self.dicts.items()}

    def inserted(self, before: Inserted) -> Inserted:
        """What the dicts hold that they did not hold before."""
        found: Inserted = {}
        for name, (cache, _) in self.dicts.items():
            old = before.get(name, {})
            if len(cache) != len(old) or cache.keys() != old.keys():
                found[name] = {key: cache[key] for key in [*cache] if key not in old}
        return {name: entries for name, entries in found.items() if entries}

    def put_back(self) -> None:
        """Forget what was not there at first; only for a forked copy."""
        for cache, first in self.dicts.values():
            cache.clear()
            cache.update(first)
        for function, info in self.functions.values():
            if function.cache_info() != info:
                with suppress(AttributeError):  # of another library
                    function.cache_clear()

    def lacking(self, inserted: Inserted) -> str | None:
        """The name of a cache that does not hold what was put into it elsewhere."""
        for name, entries in inserted.items():
            cache, _ = self.dicts[name]
            for key, value in entries.items():
                if key not in cache or watched(cache[key]) != watched(value):
                    return name
        return None
