"""A report as a picture: SVG by hand, as the environment of vLLM has no library for it.

It has a ground of its own, light or dark as the reader's screen asks for."""

import math
from typing import Any
from xml.sax.saxutils import escape

import measures

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, HEAD = 420, 230, 58, 14, 52, 34, 30
COLOURS = ("one", "two", "three", "four")
STYLE = """<style>
text{font:12px sans-serif;fill:#24292f} .title{font-weight:bold} .small{font-size:11px}
.end{text-anchor:end} .middle{text-anchor:middle}
.ground{fill:#ffffff} .grid{stroke:#d8dee4} .axis{stroke:#57606a}
.line{stroke-width:2}
.one{stroke:#0b6e4f;fill:#0b6e4f} .two{stroke:#b3541e;fill:#b3541e}
.three{stroke:#2458a6;fill:#2458a6} .four{stroke:#8250df;fill:#8250df}
@media (prefers-color-scheme: dark){
text{fill:#e6edf3} .ground{fill:#0d1117} .grid{stroke:#30363d} .axis{stroke:#8b949e}
.one{stroke:#3fb98a;fill:#3fb98a} .two{stroke:#f0883e;fill:#f0883e}
.three{stroke:#79c0ff;fill:#79c0ff} .four{stroke:#d2a8ff;fill:#d2a8ff}}
polyline.line{fill:none} circle.dot,rect.key{stroke:none}
</style>"""

Points = list[tuple[float, float | None]]


def round_step(most: float) -> float:
    """A round number of which four or five reach so far."""
    rough = max(most, 1e-9) / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(unit * by for by in (1, 2, 2.5, 5, 10) if unit * by >= rough)


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def rule(left: float, right: float, y: float, kind: str) -> str:
    return f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="{kind}"/>'


class Axis:
    """From a value to a share of the height. Logarithmic ones show times in ms."""

    def __init__(self, values: list[float], log: bool, most: float | None) -> None:
        self.log = log
        if log:
            self.low = math.floor(math.log10(max(min(values, default=1.0), 1e-3)))
            self.high = max(self.low + 1, math.ceil(math.log10(max(max(values, default=1.0), 1e-3))))
            self.marks = [10.0**power for power in range(self.low, self.high + 1)]
        else:
            step = round_step(most or max(values, default=1.0))
            self.low, self.high = 0, step * math.ceil(round((most or max(values, default=1.0)) / step, 6))
            self.marks = [step * i for i in range(round(self.high / step) + 1)]

    def share(self, value: float) -> float:
        at = math.log10(max(value, 10.0**self.low)) if self.log else value
        return (at - self.low) / ((self.high - self.low) or 1)


class Panel:
    """One chart over the steps: several lines and what they are called."""

    def __init__(
        self,
        title: str,
        lines: dict[str, Points],
        log: bool = False,
        most: float | None = None,
        unit: str = "",
    ) -> None:
        self.title, self.lines, self.unit = title, lines, unit
        values = [value for points in lines.values() for _, value in points if value is not None]
        self.axis = Axis(values, log, most)
        self.steps = max((step for points in lines.values() for step, _ in points), default=1)

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (step / self.steps)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.axis.share(value)

    def frame(self) -> list[str]:
        right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
        drawn = [text(LEFT, 18, self.title, "title")]
        for mark in self.axis.marks:
            drawn.append(rule(LEFT, right, self.y(mark), "grid"))
            drawn.append(text(LEFT - 6, self.y(mark) + 4, f"{mark:g}{self.unit}", "small end"))
        for step in range(0, int(self.steps) + 1, max(1, round(self.steps / 5))):
            drawn.append(text(self.x(step), floor + 15, str(step), "small middle"))
        return [*drawn, rule(LEFT, right, floor, "axis"), text(right, HEIGHT - 4, "step", "small end")]

    def draw(self) -> str:
        drawn, key_x = self.frame(), LEFT
        for colour, (name, points) in zip(COLOURS, self.lines.items(), strict=False):
            known = [(self.x(step), self.y(value)) for step, value in points if value is not None]
            places = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
            drawn.append(f'<polyline points="{places}" class="line {colour}"/>')
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" class="dot {colour}"/>' for x, y in known]
            drawn.append(f'<rect x="{key_x}" y="29" width="10" height="10" class="key {colour}"/>')
            drawn.append(text(key_x + 14, 38, name, "small"))
            key_x += 24 + round(6.4 * len(name))
        return "\n".join(drawn)


def panels(report: measures.Row, found: measures.Row) -> list[Panel]:
    rows = found["versions"]

    def ms(key: str) -> Points:
        return [(row["number"], None if row[key] is None else row[key] * 1000) for row in rows]

    def worst_ms(key: str) -> Points:
        return [(row["number"], max(row[key]) * 1000 if row[key] else None) for row in rows]

    def lag(key: str) -> Points:
        by_step: dict[int, list[float]] = {}
        for row in measures.lags(report):
            by_step.setdefault(row["step"], []).append(row[key])
        return [(step, sum(values) / len(values)) for step, values in sorted(by_step.items())]

    return [
        Panel(
            "Reward of the answers that a step took",
            {"share of right tokens": [(step["number"], step["reward"]) for step in report["steps"]]},
            most=1.0,
        ),
        Panel(
            "From a version to its service, ms",
            {
                "all serve it": ms("converge_s"),
                "prepared": worst_ms("prepare_s"),
                "published": ms("held_s"),
                "pause": worst_ms("pause_s"),
            },
            log=True,
        ),
        Panel(
            "Of a version",
            {
                "elements that changed": [
                    (row["number"], None if row["changed"] is None else 100 * row["changed"]) for row in rows
                ],
                "bytes that crossed": [
                    (row["number"], row["wire_bytes"] and 100 * row["wire_bytes"] / row["bytes"])
                    for row in rows
                ],
            },
            most=100,
            unit=" %",
        ),
        Panel("Versions behind", {"when answered": lag("answered"), "when trained on": lag("trained")}),
    ]


def svg(report: measures.Row, found: measures.Row) -> str:
    wide, high, head = 2 * WIDTH, 2 * HEIGHT + HEAD, "http://www.w3.org/2000/svg"
    drawn = [
        f'<svg xmlns="{head}" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" role="img">',
        f"<title>{escape(report['title'])}</title>",
        STYLE,
        f'<rect width="{wide}" height="{high}" class="ground"/>',
        text(LEFT, 20, report["title"]),
    ]
    for i, panel in enumerate(panels(report, found)):
        at = f"{i % 2 * WIDTH},{HEAD + i // 2 * HEIGHT}"
        drawn.append(f'<g transform="translate({at})">\n{panel.draw()}\n</g>')
    return "\n".join([*drawn, "</svg>"]) + "\n"
