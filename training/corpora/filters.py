"""Filters: the rules that a document of a corpus must pass."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from training.corpora.documents import CorpusError


@dataclass(frozen=True)
class Filters:
    """Rules that a document must all pass."""

    min_characters: int = 0
    """Length of the shortest text that is kept, Unicode characters."""
    max_characters: int | None = None
    """Length of the longest text that is kept; None: any."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """Column -> list of allowed values, or a regular expression to find in it. A dot selects a field of a column:
    meta.language."""

    def problems(self, key: str) -> list[str]:
        """Problems with the rules, one line each, which starts with the key, such as corpora.law."""
        problems = []
        if self.min_characters < 0:
            problems.append(f"{key}.min_characters: {self.min_characters}; allowed: 0 or more")
        if self.max_characters is not None and self.max_characters < max(self.min_characters, 1):
            problems.append(
                f"{key}.max_characters: {self.max_characters}; allowed: at least min_characters, or null for any"
            )
        if not isinstance(self.where, Mapping):
            problems.append(f"{key}.where: {self.where!r}; allowed: column -> list of values, or regular expression")
            return problems
        for column, rule in self.where.items():
            if isinstance(rule, str):
                try:
                    re.compile(rule)
                except re.error as error:
                    problems.append(f"{key}.where.{column}: {rule!r} is not a regular expression ({error})")
            elif isinstance(rule, Mapping) or not _values(rule):
                problems.append(f"{key}.where.{column}: {rule!r}; allowed: a list of values, or a regular expression")
        return problems

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rules use; for meta.language it is meta."""
        return tuple(dict.fromkeys(column.split(".")[0] for column in self.where))

    def description(self) -> list[Any]:
        """The rules as a list for the fingerprint; empty without rules."""
        if self == Filters():
            return []
        rules = {column: rule if isinstance(rule, str) else list(_values(rule)) for column, rule in self.where.items()}
        return [self.min_characters, self.max_characters, json.dumps(rules, sort_keys=True)]

    @functools.cached_property
    def _rules(self) -> list[tuple[str, re.Pattern[str] | tuple[Any, ...]]]:
        where = self.where.items()
        return [(column, re.compile(rule) if isinstance(rule, str) else _values(rule)) for column, rule in where]

    def failed_rule(self, text: str, row: Mapping[str, Any], location: str) -> str | None:
        """The first rule that a document fails, by its text and by those of its columns in `columns`; None: it passes.

        Raises:
            CorpusError: a regular expression for a column that holds no text; `location` names file and row.
        """
        if not text.strip():
            return "empty"
        if len(text) < self.min_characters:
            return "min_characters"
        if self.max_characters is not None and len(text) > self.max_characters:
            return "max_characters"
        for column, rule in self._rules:
            value = _value(row, column)
            if isinstance(rule, re.Pattern):
                if value is not None and not isinstance(value, str):
                    raise CorpusError(
                        f"{location}: column {column} is {type(value).__name__}; a regular expression needs a text, "
                        "give where a list of values"
                    )
                passed = value is not None and rule.search(value) is not None
            else:
                passed = value in rule
            if not passed:
                return f"where.{column}"
        return None


def _values(rule: Any) -> tuple[Any, ...]:
    return tuple(rule) if isinstance(rule, list | tuple) else () if rule is None else (rule,)


def _value(row: Mapping[str, Any], column: str) -> Any:
    """A column's value; None if it is missing, because JSON lines often omit a key."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
