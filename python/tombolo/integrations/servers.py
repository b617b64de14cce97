"""Inference servers that are told over HTTP to go to a version, which their plug-in has staged: pause, update, resume."""

import contextlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

_AGAIN_S = 0.02 # between two questions whether a version is staged
Phase = tuple[str, dict[str, Any] | None]


class Refused(RuntimeError):
    """A server answered with an error."""


def post(url: str, body: dict[str, Any] | None, timeout: float) -> Any:
    """Its answer, where that is JSON."""
    request = urllib.request.Request(url, data=json.dumps(body).encode() if body is not None else b"",
                                     headers={"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise Refused(f"{url}: {error.code} {error.read()[:500].decode(errors='replace')}") from None
    except (OSError, http.client.HTTPException) as error: # the latter: no whole answer
        raise Refused(f"{url}: {error or type(error).__name__}") from None
    try:
        said = json.loads(text or b"null")
    except ValueError:
        return None
    if isinstance(said, dict) and said.get("success") is False: # of SGLang, beside 200
        raise Refused(f"{url}: {said.get('message') or said}")
    return said


class Servers:
    """`servers(step)` takes all of them to that version, side by side. A server that fails is resumed all the same, and
    raises; the others have gone on."""

    def __init__(self, urls: Sequence[str], timeout: float = 600) -> None:
        self.urls, self.timeout = [url.rstrip("/") for url in ([urls] if isinstance(urls, str) else urls)], timeout
        self._ready = set[str]()

    def pause(self) -> Phase:
        raise NotImplementedError

    def update(self, step: int) -> list[Phase]:
        raise NotImplementedError

    def resume(self) -> Phase:
        raise NotImplementedError

    def initialise(self, url: str) -> None:
        """Once for each server, and again where it forgot: it was started again meanwhile."""

    def stage(self, url: str, step: int) -> None:
        """Before the pause of each update, while the server serves."""

    def recover(self, url: str) -> None:
        """An update failed."""

    def prepare(self, url: str, step: int) -> None:
        known = url in self._ready
        if not known:
            self.initialise(url)
            self._ready.add(url)
        try:
            self.stage(url, step)
        except Refused:
            self._ready.discard(url)
            if not known:
                raise
            self.prepare(url, step)

    def _post(self, url: str, phase: Phase) -> None:
        post(f"{url}/{phase[0]}", phase[1], self.timeout)

    def _one(self, url: str, step: int) -> None:
        self.prepare(url, step)
        failed = list[str]()
        try:
            self._post(url, self.pause()) # it may hold, although no answer came
            for phase in self.update(step):
                self._post(url, phase)
        except Exception as error: # whatever it is, the server has to go on
            failed.append(str(error))
            with contextlib.suppress(Exception):
                self.recover(url)
        try:
            self._post(url, self.resume())
        except Refused as error:
            failed.append(str(error))
        if failed:
            raise Refused("; ".join(failed))

    def together(self, call: Callable[[str], None]) -> None:
        failed: list[str] = []

        def run(url: str) -> None:
            try:
                call(url)
            except Exception as error: # goes to the caller
                failed.append(str(error))
        threads = [threading.Thread(target=run, args=(url,), name="tombolo-server", daemon=True) for url in self.urls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise Refused("; ".join(sorted(failed)))

    def __call__(self, step: int) -> None:
        self.together(lambda url: self._one(url, step))


class Vllm(Servers):
    """Servers of vLLM with the plug-in of tombolo.integrations.vllm and its worker extension. mode: of their pause.
    options: the plug-in's init_info."""

    def __init__(self, urls: Sequence[str], timeout: float = 600, mode: str = "keep", **options: Any) -> None:
        super().__init__(urls, timeout)
        self.mode, self._options = mode, options

    def initialise(self, url: str) -> None:
        self._post(url, ("init_weight_transfer_engine", {"init_info": self._options}))

    def _is_staged(self, url: str, step: int) -> bool:
        """vLLM answers with texts: "False" is one of them."""
        said = post(f"{url}/collective_rpc", {"method": "tombolo_stage", "args": [step]}, self.timeout)
        results = (said or {}).get("results") or ()
        return bool(results) and all(str(result) == "True" for result in results)

    def stage(self, url: str, step: int) -> None:
        """Its workers do it."""
        end = time.monotonic() + self.timeout
        while not self._is_staged(url, step):
            if time.monotonic() > end:
                raise TimeoutError(f"{url}: version {step} is not staged in {self.timeout:.0f} s")
            time.sleep(_AGAIN_S)

    def pause(self) -> Phase:
        return f"pause?mode={self.mode}", None

    def recover(self, url: str) -> None:
        """Sessions of ranks that did not raise stay open."""
        self._post(url, ("finish_weight_update", {}))

    def update(self, step: int) -> list[Phase]:
        return [("start_weight_update", None), ("update_weights", {"update_info": {"version": step}}),
                ("finish_weight_update", {"weight_version": str(step)})]

    def resume(self) -> Phase:
        return "resume", None


class Sglang(Servers):
    """Servers of SGLang that allow the receiver of tombolo.integrations.sglang (--weight-update-receivers). options: of
    that receiver."""

    RECEIVER, GROUP = "tombolo.integrations.sglang.Receiver", "tombolo"

    def __init__(self, urls: Sequence[str], timeout: float = 600, mode: str = "retract", **options: Any) -> None:
        super().__init__(urls, timeout)
        self.mode, self._options = mode, options

    def _make(self, url: str) -> None:
        self._post(url, ("init_weights_update_group", {
            "master_address": "127.0.0.1", "master_port": 1, "rank_offset": 0, "world_size": 1, "group_name": self.GROUP, "backend": "gloo",
            "receiver": self.RECEIVER, "receiver_init_payload": self._options}))

    def initialise(self, url: str) -> None:
        """Its receiver, which stages ahead by itself. One that is there from before is destroyed."""
        try:
            self._make(url)
        except Refused:
            with contextlib.suppress(Refused):
                self._post(url, ("destroy_weights_update_group", {"group_name": self.GROUP}))
            self._make(url)

    def recover(self, url: str) -> None:
        """No call asks whether the receiver is there still, so the next update makes it anew."""
        self._ready.discard(url)

    def pause(self) -> Phase:
        return "pause_generation", {"mode": self.mode}

    def update(self, step: int) -> list[Phase]:
        return [("update_weights_from_distributed", {
            "names": [], "dtypes": [], "shapes": [], "group_name": self.GROUP, "flush_cache": self.mode != "in_place",
            "receiver_payload": {"version": step}, "weight_version": str(step)})]

    def resume(self) -> Phase:
        return "continue_generation", {}
