"""The figures as SVG by gnuplot, from the tables of a run."""

import shutil
import subprocess

OURS, NAIVE = "#0b6e4f", "#b3541e"
LOOK = f"""set terminal svg size 560,340 font "sans-serif,12" background "#ffffff"
set tmargin 3
set key at graph 0, 1.17 left Left reverse vertical samplen 2
set grid ytics lc rgb "#dddddd"
set border 3
set tics nomirror
set style line 1 lc rgb "{OURS}" lw 2 pt 7 ps 0.7
set style line 2 lc rgb "{NAIVE}" lw 2 pt 5 ps 0.7
"""

# table: (x label, y label, whether y is logarithmic, columns of ours and of the naive way, what
# these are)
FIGURES = {
    "figure-standalone": ("readers of the trainer's site at once", "stall, s", True, (2, 3)),
    "figure-elastic": ("reader, one a second", "until it has switched, s", False, (2, 3)),
    "figure-crossdc": ("readers of a remote site at once", "stall, s", True, (2, 3)),
}


def script(name, out, rows):
    x, y, log, columns = FIGURES[name]
    data = "$data << END\n" + "\n".join(" ".join(row) for row in rows) + "\nEND\n"
    scale = "set logscale y\n" if log else "set yrange [0:*]\n"
    lines = [f'$data using 1:{c} with linespoints ls {i} title "{title}"'
             for i, (c, title) in enumerate(zip(columns, ("Tombolo", "each pulls the full version")), start=1)]
    return (LOOK + data + f'set output "{out}"\nset xlabel "{x}"\nset ylabel "{y}"\n' + scale
            + "set xtics (" + ", ".join(row[0] for row in rows) + ")\n"
            + f"set xrange [0.5:{float(rows[-1][0]) + 0.5}]\nplot " + ", ".join(lines) + "\n")


def draw(folder, tables):
    """{table: its SVG} of those figures that were measured: a page shows none that is older than its table."""
    drawn = {}
    for name in sorted(FIGURES.keys() & tables.keys()):
        rows = tables[name][1]
        if rows and shutil.which("gnuplot") is not None:
            drawn[name] = folder / f"{name}.svg"
            subprocess.run(["gnuplot"], input=script(name, drawn[name], rows), text=True, check=True, timeout=60)
    return drawn
