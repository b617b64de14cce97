"""Inference servers that are told over HTTP to go to a version, which their plug-in has staged: pause, update, resume."""

import contextlib
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
    except OSError as error:
        raise Refused(f"{url}: {error}") from None
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

    def pause(self) -> Phase:
        raise NotImplementedError

    def update(self, step: int) -> list[Phase]:
        raise NotImplementedError

    def resume(self) -> Phase:
        raise NotImplementedError

    def prepare(self, url: str, step: int) -> None:
        """Before the pause of each update, while the server serves."""

    def recover(self, url: str) -> None:
        """An update failed."""

    def _post(self, url: str, phase: Phase) -> None:
        post(f"{url}/{phase[0]}", phase[1], self.timeout)

    def _one(self, url: str, step: int) -> None:
        self.prepare(url, step)
        self._post(url, self.pause())
        try:
            for phase in self.update(step):
                self._post(url, phase)
        except Refused:
            self.recover(url)
            raise
        finally:
            self._post(url, self.resume())

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
        self.mode, self._options, self._ready = mode, options, set[str]()

    def prepare(self, url: str, step: int) -> None:
        """Its workers stage the version."""
        if url not in self._ready:
            self._post(url, ("init_weight_transfer_engine", {"init_info": self._options}))
            self._ready.add(url)
        end = time.monotonic() + self.timeout
        while not all(post(f"{url}/collective_rpc", {"method": "tombolo_stage", "args": [step]}, self.timeout)["results"]):
            if time.monotonic() > end:
                raise Refused(f"{url}: version {step} is not staged in {self.timeout:.0f} s")
            time.sleep(_AGAIN_S)

    def pause(self) -> Phase:
        return f"pause?mode={self.mode}", None

    def recover(self, url: str) -> None:
        """Sessions of ranks that did not raise stay open."""
        with contextlib.suppress(Refused):
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
        self.mode, self._options, self._ready = mode, options, set[str]()

    def prepare(self, url: str, step: int) -> None:
        """The receiver of a server is made once. It stages ahead by itself."""
        if url in self._ready:
            return
        post(f"{url}/init_weights_update_group", {
            "master_address": "127.0.0.1", "master_port": 1, "rank_offset": 0, "world_size": 1, "group_name": self.GROUP, "backend": "gloo",
            "receiver": self.RECEIVER, "receiver_init_payload": self._options}, self.timeout)
        self._ready.add(url)

    def pause(self) -> Phase:
        return "pause_generation", {"mode": self.mode}

    def update(self, step: int) -> list[Phase]:
        return [("update_weights_from_distributed", {
            "names": [], "dtypes": [], "shapes": [], "group_name": self.GROUP, "flush_cache": self.mode != "in_place",
            "receiver_payload": {"version": step}, "weight_version": str(step)})]

    def resume(self) -> Phase:
        return "continue_generation", {}
