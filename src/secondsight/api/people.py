"""Serve the people whom an issuer vouched for, to admins of their tenants, and erase them."""

from typing import Annotated

from fastapi import APIRouter, Query

from secondsight.access.audit import AuditEntry
from secondsight.access.people import Person, erase_person, list_people
from secondsight.api.administration import Admin, administered
from secondsight.api.models import ErrorAnswer, Shape
from secondsight.api.parameters import PageParameters, page_of
from secondsight.api.services import Reader, Shared
from secondsight.query.times import format_time

_ERRORS: dict[int | str, dict[str, type[ErrorAnswer]]] = {code: {"model": ErrorAnswer} for code in (400, 404, 422)}
router = APIRouter(tags=["administration"], responses=_ERRORS)


class UserAnswer(Shape):
    """A person; the name is empty once erased."""

    user_id: str
    subject: str
    name: str
    role: str
    tenant_id: str
    created: str
    seen: str
    erased: str | None


class UserPage(Shape):
    """A page of people, oldest first."""

    users: list[UserAnswer]
    total: int
    next_cursor: str | None


@router.get("/v1/users")
def users(services: Shared, _caller: Admin, scope: Reader, asked: Annotated[PageParameters, Query()]) -> UserPage:
    """Return the people of tenants that the caller administers, erased ones too."""
    found = list_people(services.metadata, administered(scope))
    page, cursor = page_of(found, asked)
    return UserPage(users=[_user(one) for one in page], total=len(found), next_cursor=cursor)


@router.delete("/v1/users/{user_id}", status_code=204)
def erase_user(services: Shared, caller: Admin, scope: Reader, user_id: str) -> None:
    """Erase a person: the name and what was asked go, sessions and grants end, and the person stays shut out."""
    now_ms = services.clock.now_ms()
    tenant_id = erase_person(services.metadata, user_id, administered(scope), now_ms)
    services.inventory.forget_kind("issuer")
    services.audit.record(AuditEntry(now_ms, caller.subject, tenant_id, "person_erase", "ok", user_id))


def _user(person: Person) -> UserAnswer:
    return UserAnswer(
        user_id=person.user_id,
        subject=f"user:{person.user_id}",
        name=person.name,
        role=person.role.value,
        tenant_id=person.tenant_id,
        created=format_time(person.created_ms),
        seen=format_time(person.seen_ms),
        erased=None if person.disabled_ms is None else format_time(person.disabled_ms),
    )
