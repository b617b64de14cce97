"""The six measures that the field asks for, from a report of what the trainer and the engines saw.

All times are of one clock (CLOCK_MONOTONIC of this machine), in seconds."""

import bisect
import statistics
from typing import Any

Row = dict[str, Any]


def middle(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def converged(report: Row, number: int) -> list[float]:
    """When each engine began to serve this version or a newer one, in the order of time. An engine
    that never did is not among them."""
    first: dict[int, float] = {}
    for switch in report["switches"]:
        if switch["version"] >= number:
            first[switch["engine"]] = min(first.get(switch["engine"], float("inf")), switch["resumed"])
    return sorted(first.values())


def of_version(report: Row, version: Row) -> Row:
    """The record of a version behind the first, which crossed before the engines were there."""
    mine = [switch for switch in report["switches"] if switch["version"] == version["number"]]
    ends = converged(report, version["number"])
    all_of_them = len(ends) == len(report["starts"])
    return {
        "number": version["number"],
        "publish_s": version["published"] - version["begun"],
        "held_s": version["held"] - version["begun"],
        "bytes": version["bytes"],
        "wire_bytes": version["wire_bytes"],
        "changed": version["changed"],
        "prepare_s": [switch["staged"] - switch["told"] for switch in mine],
        "pause_s": [switch["resumed"] - switch["paused"] for switch in mine],
        "tokens_meanwhile": sum(switch["tokens"] for switch in mine),
        "converge_s": ends[-1] - version["begun"] if all_of_them else None,
        "spread_s": ends[-1] - ends[0] if all_of_them else None,
    }


def lags(report: Row) -> list[Row]:
    """Of each request: how many versions its oldest token was behind, when it was answered and
    when a step took it. Step N starts from version N - 1."""
    published = [version["published"] for version in report["versions"]]  # by number, from 0 on
    found = []
    for request in report["requests"]:
        oldest = min(span[2] for span in request["spans"])
        newest = bisect.bisect_right(published, request["answered"]) - 1
        found.append(
            {
                "step": request["step"],
                "answered": newest - oldest,
                "trained": request["step"] - 1 - oldest,
                "versions": len(request["spans"]),
            }
        )
    return found


def differing(report: Row) -> list[str]:
    """Where the weights that an engine served are not the trainer's, bit for bit."""
    right = {version["number"]: version["digest"] for version in report["versions"]}
    served = [{**start, "version": 0} for start in report["starts"]] + report["switches"]
    return [
        f"engine {row['engine']}, version {row['version']}"
        for row in served
        if row["digest"] != right[row["version"]]
    ]


def spread(values: list[float]) -> Row:
    return {"median": middle(values), "most": max(values) if values else None}


def summary(report: Row) -> Row:
    rows = [of_version(report, version) for version in report["versions"][1:]]
    requests = lags(report)
    served = [{**start, "version": 0} for start in report["starts"]] + report["switches"]

    def all_of(key: str) -> Row:
        return spread([row[key] for row in rows if row[key] is not None])

    def each_of(key: str) -> Row:
        return spread([value for row in rows for value in row[key]])

    return {
        "versions": rows,
        "publish_s": all_of("publish_s"),
        "held_s": all_of("held_s"),
        "bytes": report["versions"][0]["bytes"],
        "wire_bytes": all_of("wire_bytes"),
        "changed": all_of("changed"),
        "prepare_s": each_of("prepare_s"),
        "pause_s": each_of("pause_s"),
        "converge_s": all_of("converge_s"),
        "spread_s": all_of("spread_s"),
        "lag_answered": {
            **spread([row["answered"] for row in requests]),
            "mean": statistics.mean(row["answered"] for row in requests),
        },
        "lag_trained": {
            **spread([row["trained"] for row in requests]),
            "mean": statistics.mean(row["trained"] for row in requests),
        },
        "requests": len(requests),
        "requests_of_several_versions": sum(row["versions"] > 1 for row in requests),
        "served": len(served),
        "differ": differing(report),
        "reward_first": report["steps"][0]["reward"],
        "reward_last": report["steps"][-1]["reward"],
    }


def milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def table(found: Row) -> str:
    """The six measures as text: the median of the versions, and the worst."""

    def times(key: str) -> tuple[str, str]:
        median, most = map(milliseconds, found[key].values())
        return median, most

    def shares(key: str, whole: float) -> tuple[str, str]:
        median, most = ("-" if value is None else f"{value / whole:.1%}" for value in found[key].values())
        return median, most

    def counts(key: str) -> tuple[str, str]:
        return f"{found[key]['mean']:.2f} (mean)", f"{found[key]['most']}"

    rows = [
        ("1 encode and publish", *times("held_s")),
        ("  of it the trainer waits", *times("publish_s")),
        (f"2 elements that changed, of {found['bytes'] / 1e6:.1f} MB", *shares("changed", 1)),
        ("  bytes that crossed, of all", *shares("wire_bytes", found["bytes"])),
        ("3 preparation at the replica", *times("prepare_s")),
        ("4 activation pause", *times("pause_s")),
        ("5 all replicas serve it", *times("converge_s")),
        ("  the last behind the first", *times("spread_s")),
        ("6 versions behind, when answered", *counts("lag_answered")),
        ("  when trained on", *counts("lag_trained")),
    ]
    wide = max(len(row[0]) for row in rows)
    return "\n".join(
        f"{what:<{wide}}  {median:>13}  {most:>10}" for what, median, most in [("", "median", "worst"), *rows]
    )
