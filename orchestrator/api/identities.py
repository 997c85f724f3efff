"""Routes of identities."""

from orchestrator.api.http import ApiCall, route
from orchestrator.wire.identities import (
    DefaultIdentity,
    DefaultIdentityBody,
    IdentityBody,
    IdentityChange,
    IdentityReply,
    IdentityRows,
    ShortIdentity,
)


@route("GET", "/v1/identities", "query")
async def identities(call: ApiCall) -> IdentityRows:
    """The identities that questions can be asked under."""
    return IdentityRows(identities=await call.service.identities(call.principal))


@route("PUT", "/v1/identities", "admin", faults=("not_found", "invalid_request"))
async def use_identity(call: ApiCall, body: DefaultIdentityBody) -> DefaultIdentity:
    """From now on, questions that name no identity are asked under this one, until the daemon ends: the setting
    `identity.default` is the client's to write. Floors are computed in the background."""
    return await call.service.use_identity(call.principal, body.name, dry_run=body.dry_run)


@route("GET", "/v1/identities/{name}", "query", faults=("not_found", "invalid_request"))
async def identity(call: ApiCall) -> IdentityReply:
    """One identity: its text, its tokens, who is asked under it, and what it costs when it comes anew."""
    return IdentityReply(identity=await call.service.identity(call.principal, call.name))


@route("POST", "/v1/identities/{name}/condense", "admin", faults=("not_found", "invalid_request"))
async def condense_identity(call: ApiCall) -> ShortIdentity:
    """Has the loaded model shorten it. Every rule stays to the letter, or an extract takes the place of what the model
    wrote. Nothing is written: that is a PUT with the text."""
    return await call.service.condense_identity(call.principal, call.name)


@route("PUT", "/v1/identities/{name}", "admin", faults=("invalid_request",))
async def put_identity(call: ApiCall, body: IdentityBody) -> IdentityChange:
    """Writes an identity's file, and tells what the new floors cost. They are computed in the background, and the ones
    before answer until then."""
    return await call.service.put_identity(call.principal, call.name, body.text, dry_run=body.dry_run, keep=body.keep)
