"""ASGI middleware: a server answers with a version that the caller can work with, or says when it will.

    vllm serve MODEL --middleware tombolo.integrations.gate.Gate

A request asks by header (x-tombolo-min-version, x-tombolo-exact) or query (min_version, exact). Where
another version serves, the answer is 409: what is served, and when the wanted one will be. Each answer
of `PATHS` says its version in the header x-tombolo-version; "5-6" changed over while it was made."""

import asyncio
import contextlib
import json
import math
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

from ..library import Error
from ..publishing import gateway_address
from ..sessions import Session

PATHS = ("/v1/", "/inference/", "/generate")
_WISHES = {b"x-tombolo-min-version": "min_version", b"x-tombolo-exact": "exact"}
Scope = dict[str, Any]


class Refused(Exception):
    """400: what was wrong with the wish."""


class Gate:
    """served(scope): the number that is served, None: it is not known. coming(wish): a dictionary about the wanted
    version, or None. By default the server behind is asked as vLLM is, and the gateway (TOMBOLO_GATEWAY) for the model
    TOMBOLO_MODEL, "policy" else."""

    def __init__(self, app: Any, served: Callable[[Scope], Awaitable[int | None]] | None = None,
                 coming: Callable[[dict[str, int]], dict[str, Any] | None] | None = None) -> None:
        self.app = app
        self._served = served or self._of_vllm
        self._coming = coming or of_gateway
        self._start: int | None = None # that its workers said
        self._orders, self._running = 0, 0 # requests that may change it

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PATHS):
            with self._order() if scope["type"] == "http" and scope["method"] == "POST" else contextlib.nullcontext():
                await self.app(scope, receive, send)
            return
        try:
            wish = wish_of(scope)
        except Refused as error:
            await _answer(send, 400, {"error": str(error)})
            return
        before = await self._served(scope)
        if not _fits(wish, before):
            await self._refuse(send, wish, before)
            return
        dropped = False

        async def stamped(message: dict[str, Any]) -> None:
            nonlocal dropped
            if message["type"] == "http.response.start":
                after = await self._served(scope)
                if "exact" in wish and after != before and message["status"] < 400:
                    dropped = True # some of it, or all, is another version's
                    await self._refuse(send, wish, after)
                elif after is not None:
                    text = str(after) if before == after else f"{'' if before is None else before}-{after}"
                    message = {**message, "headers": [*message.get("headers", ()), (b"x-tombolo-version", text.encode())]}
            if not dropped:
                await send(message)
        await self.app(scope, receive, stamped)

    async def _refuse(self, send: Any, wish: dict[str, int], served: int | None) -> None:
        coming = await asyncio.to_thread(self._coming, wish)
        eta = (coming or {}).get("eta_s")
        await _answer(send, 409, {"error": "another version is served", "served": served, "wanted": wish, "coming": coming},
                      *([(b"retry-after", str(max(1, math.ceil(eta[1]))).encode())] if eta else []))

    async def _of_vllm(self, scope: Scope) -> int | None:
        """The version of its last finish_weight_update; before that the version that its workers started from."""
        version = (await self._ask(scope, "GET", "/weight_info") or {}).get("weight_version")
        if version is not None and str(version).isdecimal():
            return int(version)
        if self._start is not None:
            return self._start
        orders = self._orders
        said = (await self._ask(scope, "POST", "/collective_rpc", {"method": "tombolo_version"}) or {}).get("results")
        started = int(said[0]) if said and len(set(said)) == 1 and str(said[0]).isdecimal() else None
        if orders == self._orders and self._running == 0:
            self._start = started
        return started

    @contextlib.contextmanager
    def _order(self) -> Iterator[None]:
        """An engine is controlled by POST, by tombolo_update for example, which no /weight_info tells."""
        self._start = None
        self._orders += 1
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def _ask(self, scope: Scope, method: str, path: str, body: Any = None) -> dict[str, Any] | None:
        """The server behind, as this caller. None: it does not answer that."""
        headers = [(name, value) for name, value in scope["headers"] if name in (b"authorization", b"host")]
        asked = {**scope, "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
                 "headers": [*headers, (b"content-type", b"application/json")]}
        status, parts, answered = 0, [], asyncio.Event()
        asks = [{"type": "http.request", "body": b"" if body is None else json.dumps(body).encode(), "more_body": False}]

        async def receive() -> dict[str, Any]:
            if asks:
                return asks.pop()
            await answered.wait() # a server that hears of it before ends the request
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered.set()
        try:
            await self.app(asked, receive, send)
        finally:
            answered.set()
        with contextlib.suppress(ValueError): # another server's page
            said = json.loads(b"".join(parts)) if status == 200 else None
            return said if isinstance(said, dict) else None
        return None


def wish_of(scope: Scope) -> dict[str, int]:
    asked = {name: values[-1] for name, values in parse_qs(scope.get("query_string", b"").decode("latin-1")).items()}
    texts = {name: asked[name] for name in _WISHES.values() if name in asked}
    texts |= {_WISHES[name.lower()]: value.decode("latin-1") for name, value in scope["headers"] if name.lower() in _WISHES}
    for name, text in texts.items():
        if not text.isdecimal() or len(text) > 20:
            raise Refused(f"{name} is the number of a version, not {text[:40]!r}")
    return {name: int(text) for name, text in texts.items()}


def _fits(wish: dict[str, int], served: int | None) -> bool:
    if not wish:
        return True
    return served is not None and served >= wish.get("min_version", 0) and served == wish.get("exact", served)


async def _answer(send: Any, status: int, content: dict[str, Any], *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(content).encode()
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]})
    await send({"type": "http.response.body", "body": body})


def _number(named: str | None) -> int:
    return int(named.rpartition(":")[2]) if named else -1 # "RUN:NUMBER"


def of_gateway(wish: dict[str, int]) -> dict[str, Any] | None:
    """The knowledge of this site's gateway about the wanted version: {"version", "state", "eta_s"}. None: nothing. The estimate
    needs the gateway's second control socket (`control.read`) by TOMBOLO_CONTROL, and is null without it."""
    model, wanted = os.environ.get("TOMBOLO_MODEL", "policy"), max(wish.values())
    try:
        with contextlib.closing(Session(gateway_address(None))) as session:
            row = next((row for row in json.loads(session.status("site"))["models"] if row["model"] == model), None)
    except (Error, OSError):
        return None
    if row is None or _number(row["head"]) < wanted and _number(row["latest"]) < wanted:
        return None
    if _number(row["latest"]) >= wanted:
        return {"version": wanted, "state": "at the site, and the engine has not changed over", "eta_s": None}
    return {"version": wanted, "state": f"on its way: {row['reason']}", "eta_s": _estimate(model, wanted)}


def _estimate(model: str, wanted: int) -> Any:
    where = os.environ.get("TOMBOLO_CONTROL")
    if where is None:
        return None
    import socket

    with contextlib.suppress(OSError, ValueError, KeyError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
        control.settimeout(2)
        control.connect(where)
        control.sendall(json.dumps({"schema": 1, "cmd": "versions", "model": model}).encode() + b"\n")
        rows = json.loads(control.makefile().readline())["versions"]
        return next((row["eta_s"] for row in rows if row["number"] == wanted and row["eta_s"]), None)
    return None
