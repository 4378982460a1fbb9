"""Read and validate a sent form, without the package that FastAPI's own forms need."""

from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from pairmill.catalog.terms.error import PairmillError

MOST_BYTES = 20_000
Model = TypeVar("Model", bound=BaseModel)


def sent(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """Return a dependency that reads an urlencoded form as ``model``.

    The dependency raises RequestValidationError for a field that is not valid, PairmillError for a form of over
    MOST_BYTES.
    """

    async def read(request: Request) -> Model:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                raise PairmillError("this form is too long; shorten its fields.")
        try:
            return model.model_validate(dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True)))
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from error

    return read
