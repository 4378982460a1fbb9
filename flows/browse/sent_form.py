"""Read the urlencoded form of a request and validate it by a model."""

from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from pairmill.catalog.terms.error import PairmillError

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
