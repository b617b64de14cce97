/* page_style.c - the style sheet of the page: dark or light as the browser asks, and narrow on a
 * phone. */
#include "gateway/web/page.h"

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#5c6570;--line:#d8dee4;"
    "--good:#1a7f37;--bad:#b42318;--warn:#8a5a00;--unknown:#6e7781;--bar:#0969da}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--soft:#9aa4af;--line:#30363d;"
    "--good:#4ac26b;--bad:#ff7b72;--warn:#e3b341;--unknown:#8b949e;--bar:#58a6ff}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:76rem;padding:1rem 1.25rem 3rem;color:var(--ink);"
    "background:var(--paper);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.05rem;margin:2rem 0 .5rem}"
    ".verdict{font-size:1.15rem;border-left:.3rem solid var(--good);padding:.25rem .75rem;margin:1rem 0}"
    ".verdict.bad{border-color:var(--bad)}.verdict.unknown{border-color:var(--unknown)}"
    ".verdict.warn{border-color:var(--warn)}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.3rem .75rem .3rem 0;border-bottom:1px solid "
    "var(--line);vertical-align:top}"
    "th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right}td.n,th{white-space:nowrap}tr.more "
    "td{color:var(--soft);font-size:.9rem;padding-top:0}tr:has(+tr.more) td{border-bottom:0}\n"
    ".good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.unknown,.soft{color:var(--soft)}"
    "tr.stale td{color:var(--unknown)}\n"
    "meter{width:8rem;height:.7rem}svg{width:100%;height:1.1rem;display:block}"
    "svg rect{fill:var(--bar)}svg rect.queued{fill:var(--line)}svg rect.manifests{fill:var(--warn)}"
    "footer{margin-top:2rem;color:var(--soft);font-size:.9rem}\n"
    "@media(max-width:40rem){body{padding:.75rem}td,th{padding-right:.5rem}}\n";

const char *tb_page_style(void)
{
    return style;
}
