"""Validate what a request sends: the query string of a gallery's URL, and an urlencoded form; write query strings."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.answer_types import Choice, ImageSet, SortOrder

ID = re.compile(r"[0-9a-f]{32}")
FILTERS = ("source", "domain", "language", "format", "tag", "status", "cluster", "group", "where")


class Asked(BaseModel):
    """Parsed query string of a gallery's URL: dataset, filters, order, search. Default values restrict nothing."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    dataset: str = Field("", max_length=200)
    fate: str = Field("", max_length=200)
    source: str = Field("", max_length=2000)
    domain: str = Field("", max_length=2000)
    language: str = Field("", max_length=100)
    format: str = Field("", max_length=20)
    tag: str = Field("", max_length=500)
    status: str = Field("", max_length=100)
    cluster: int | None = None
    group: str = Field("", max_length=64)
    score: str = Field("", max_length=100)
    low: float | None = Field(None, allow_inf_nan=False)
    high: float | None = Field(None, allow_inf_nan=False)
    where: str = Field("", max_length=4000)
    sort: str = Field("", max_length=100)
    desc: bool = False
    words: str = Field("", max_length=500)
    like: str = Field("", max_length=64)
    area: str = Field("", pattern=r"^(\d{1,5},\d{1,5}(;\d{1,5},\d{1,5}){2,199})?$")
    change: str = Field("", max_length=500, pattern=r"^((gained|lost|changed):.+)?$")
    since: str = Field("", max_length=200)
    until: str = Field("", max_length=200)
    after: str = Field("", max_length=200)

    @field_validator("cluster", "low", "high", "desc", mode="before")
    @classmethod
    def _read_field(cls, value: Any, field: ValidationInfo) -> Any:
        """Read an empty field of a form as its default, a ticked box as True."""
        if value in ("", None):
            return cls.model_fields[field.field_name or ""].default
        return True if value == "on" else value

    def choice(self, among: tuple[str, ...] | None = None, sets: tuple[ImageSet, ...] = ()) -> Choice:
        """Return the filters as a choice of images, within the sha256s ``among`` (a search's results) and ``sets``."""
        names = (*FILTERS, "fate", "score", "low", "high")
        return Choice(**{name: getattr(self, name) for name in names}, among=among, sets=sets)

    @property
    def order(self) -> SortOrder:
        """Sort order of the gallery."""
        return SortOrder(self.sort, self.desc)

    def rule(self) -> str:
        """Return the filters that a rule can have as its predicate, '' without any: the rule's own, a score's range."""
        low = [f"{self.score} >= {self.low:g}"] if self.score and self.low is not None else []
        high = [f"{self.score} <= {self.high:g}"] if self.score and self.high is not None else []
        where = [f"({self.where})" if low or high else self.where] if self.where.strip() else []
        return " AND ".join([*where, *low, *high])

    def query(self, **changes: Any) -> str:
        """Return the query string of this gallery with ``changes``, from its first page unless ``after`` is changed."""
        given = self.model_dump() | {"after": ""} | changes
        pairs = [(name, "1" if value is True else value) for name, value in given.items()]
        return urlencode([(name, value) for name, value in pairs if value not in ("", None, False)])

    def active(self) -> list[tuple[str, str, str]]:
        """Return (name, value, query string without it) of each filter in use, except ``fate`` (kept or dropped)."""
        given = [(name, getattr(self, name)) for name in (*FILTERS, "words", "like")]
        shown = [(name, str(value), self.query(**{name: ""})) for name, value in given if value not in ("", None)]
        if self.score and (self.low is not None or self.high is not None):
            low = "" if self.low is None else f"{self.low:g} ≤ "
            high = "" if self.high is None else f" ≤ {self.high:g}"
            shown.append(("score", f"{low}{self.score}{high}", self.query(score="", low="", high="")))
        if self.change:
            words = f"{self.change.replace(':', ' by ')}, {self.since} to {self.until}"
            shown.append(("change", words, self.query(change="", since="", until="")))
        return [*shown, *([("area", "of the map", self.query(area=""))] if self.area else [])]


Form = TypeVar("Form", bound=BaseModel)


def sent_form(model: type[Form], most_bytes: int = 20_000, lists: str = "") -> Callable[[Request], Awaitable[Form]]:
    """Return a dependency that reads a form as ``model``: FastAPI's own forms need a further package.

    All values of the field ``lists`` are collected into one list. The dependency raises RequestValidationError for a
    field that is not valid, PairmillError for a form of over ``most_bytes``.
    """

    async def read(request: Request) -> Form:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > most_bytes:
                raise PairmillError("this form is too long; shorten its fields, or select fewer pictures at once.")
        pairs = parse_qsl(body.decode(errors="replace"), keep_blank_values=True)
        fields = dict(pairs) | ({lists: [value for name, value in pairs if name == lists]} if lists else {})
        try:
            return model.model_validate(fields)
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from error

    return read
